"""Tests of the browser environment in a real Chromium."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import struct
import subprocess
import sys
from calendar import month_name
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from anyio import fail_after, move_on_after, sleep
from playwright.async_api import TimeoutError as PlaywrightTimeout
from pydantic import TypeAdapter, ValidationError
from support import rewards
from support.memory import MIB, kept_below
from support.servers import serving

from browser_env.client import BrowserEnv
from browser_env.models import (
    Answer,
    AnyAction,
    Back,
    BrowserObservation,
    Check,
    Click,
    CloseTab,
    Dialogs,
    Drag,
    Element,
    Evaluate,
    Extract,
    Fill,
    Forward,
    Hover,
    Navigate,
    NewTab,
    Press,
    Reload,
    Scroll,
    Select,
    SwitchTab,
    Type,
    Wait,
)
from browser_env.server.acting import explained
from browser_env.server.app import app
from browser_env.server.browser_environment import BrowserEnvironment
from browser_env.server.chromium import (
    BrowserGone,
    BrowserNotFound,
    BrowserNotStarted,
    LaunchSettings,
    Lease,
)
from browser_env.server.hosts import AllowedHosts
from browser_env.server.observing import MAX_TITLE
from browser_env.server.sites import MAX_FILE, MAX_FORM, Folder, SiteRequest
from browser_env.server.tasks import BUNDLED_TASKS, Task
from browser_env.server.window import MAX_EVENTS
from openenv.errors import ExecutionFailed, Refused, StepTimeout, ValidationFailed
from openenv.testing import check_environment

# BROWSER_EXECUTABLE and BROWSER_SANDBOX stay, because they describe this machine.
VARIABLES = ("BROWSER_TASK", "BROWSER_ALLOWED_HOSTS")
KINDS = [task.kind for task in BUNDLED_TASKS]

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_browser(anyio_backend: str) -> AsyncIterator[None]:
    """Hold a lease of the browser for local pages, so that it starts once for all tests."""
    lease = await Lease.take(LaunchSettings(AllowedHosts().resolver_rules))
    yield
    await lease.release()


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def browsing(*args: Any, **kwargs: Any) -> AsyncIterator[BrowserEnvironment]:
    env = BrowserEnvironment(*args, **kwargs)
    try:
        yield env
    finally:
        await env.close_async()


async def do(env: BrowserEnvironment, *actions: AnyAction) -> BrowserObservation:
    """Carry out actions that all succeed."""
    seen = None
    for action in actions:
        seen = await env.step_async(action)
        assert not seen.error, f"{action}: {seen.error}"
    assert seen is not None
    return seen


# ------------------------------------------------------------------------- the bundled tasks

Solver = Callable[[BrowserEnvironment, BrowserObservation], Awaitable[BrowserObservation]]


def quoted(goal: str) -> list[str]:
    return re.findall("“(.*?)”", goal)


def button(name: str, nth: int | None = None) -> Click:
    return Click(role="button", name=name, nth=nth)


async def click_button(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    return await do(env, button(quoted(seen.goal)[0]))


async def click_link(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    return await do(env, Click(role="link", name=quoted(seen.goal)[0]))


async def enter_text(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    return await do(env, Type(selector="input", value=quoted(seen.goal)[0]), Press(key="Enter"))


async def login(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    user, password = quoted(seen.goal)
    wrong = await do(env, Fill(selector="[name=user]", value="nobody"), button("Log in"))
    assert "Attempts left: 2" in wrong.tree and wrong.reward == 0.0
    fill = Fill(role="textbox", name="User", value=user)
    return await do(env, fill, Fill(selector="[type=password]", value=password), button("Log in"))


async def choose_list(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    city = seen.goal.split()[1]
    return await do(env, Select(selector="select", values=[city]), button("Submit"))


async def check_boxes(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    (ticked,) = re.findall(r'checkbox "(\w+)" \[checked\]', seen.tree)
    await do(env, Check(role="checkbox", name=ticked, checked=False))
    for thing in seen.goal.split(": ")[1].split(". ")[0].split(", "):
        await do(env, Check(role="checkbox", name=thing))
    return await do(env, button("Submit"))


async def pick_date(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    day, month, year = re.findall(r"(\d+) (\w+) (\d{4})", seen.goal)[0]
    turns = (int(year) - 2024) * 12 + list(month_name).index(month) - 5
    for _ in range(abs(turns)):
        seen = await do(env, button("Later" if turns > 0 else "Earlier"))
    assert f"{month} {year}" in seen.tree
    return await do(env, Click(selector=f"#days button >> nth={int(day) - 1}"), button("Submit"))


async def drag_card(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    colour = re.findall(r"the (\w+) box", seen.goal)[0]
    box = Element(role="group", name=f"{colour} box")
    return await do(env, Drag(selector=f"#card-{quoted(seen.goal)[0]}", to=box), button("Submit"))


async def scroll_terms(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    early = await env.step_async(button("Accept"))
    assert "disabled" in early.error
    return await do(env, Scroll(role="region", name="Terms", dy=50_000), button("Accept"))


async def wait_for_button(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    early = await env.step_async(button("Collect"))
    assert "no element matches" in early.error
    return await do(env, Wait(seconds=12), button("Collect"))


async def fill_form(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    order = r"“(\d+) (\w+) boxes, please, to (\w+). Yours, (\w+) (\w+).”"
    count, colour, city, first, last = re.findall(order, seen.goal)[0]
    return await do(
        env,
        Fill(selector="[name=first]", value=first),
        Fill(selector="[name=last]", value=last),
        Fill(selector="[name=city]", value=city),
        Select(selector="[name=colour]", values=[colour]),
        Fill(selector="[name=count]", value=count),
        button("Submit"),
    )


async def search(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    thing, wanted = quoted(seen.goal)
    field = Fill(role="searchbox", name="Search", value=thing)
    return await do(env, field, button("Search"), Click(role="link", name=wanted))


async def table_lookup(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    name = re.findall(r"([A-Z]\w+ [A-Z]\w+)(?: work)?\?", seen.goal)[0]
    cells = (await do(env, Extract(selector="td"))).extracted
    assert cells is not None
    row = cells[cells.index(name) :]
    return await do(env, Answer(text=row[2] if "extension" in seen.goal else row[1]))


async def voucher(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    seen = await do(env, Click(role="link", name="Show my voucher"))
    assert [tab.is_active for tab in seen.tabs] == [False, True]
    (code,) = re.findall("[A-Z0-9]{8}", seen.tree)
    fill = Fill(role="textbox", name="Code", value=code)
    return await do(env, SwitchTab(tab=0), fill, button("Redeem"))


async def hover_menu(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    wanted, menu = quoted(seen.goal)
    assert f'"{wanted}"' not in seen.tree
    return await do(env, Hover(text=menu), button(wanted))


async def pages(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    wanted = quoted(seen.goal)[0]
    while f'"{wanted}"' not in seen.tree:
        seen = await do(env, Click(role="link", name="Later"))
    return await do(env, Click(selector=f"tr:has(td:text-is('{wanted}')) button"))


async def delete_entry(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    delete = button(f"Delete {quoted(seen.goal)[0]}")
    cancelled = await do(env, delete)
    assert not cancelled.done
    assert [event.kind for event in cancelled.events] == ["dialog"]
    return await do(env, Dialogs(accept=True), delete)


async def checkout(env: BrowserEnvironment, seen: BrowserObservation) -> BrowserObservation:
    one, other = re.findall(r"Put the (.*) and the (.*) into", seen.goal)[0]
    await do(env, button(f"Add {one}"), button(f"Add {other}"))
    return await do(env, Click(role="link", name="Basket"), button("Check out"))


SOLVERS: dict[str, Solver] = {
    "click-button": click_button,
    "click-link": click_link,
    "enter-text": enter_text,
    "login": login,
    "choose-list": choose_list,
    "check-boxes": check_boxes,
    "pick-date": pick_date,
    "drag-card": drag_card,
    "scroll-terms": scroll_terms,
    "wait-for-button": wait_for_button,
    "fill-form": fill_form,
    "search": search,
    "table-lookup": table_lookup,
    "voucher": voucher,
    "hover-menu": hover_menu,
    "pages": pages,
    "delete-entry": delete_entry,
    "checkout": checkout,
}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_task_is_solved_by_what_its_goal_says(kind: str) -> None:
    async with browsing() as env:
        for instance in (f"{kind}/3", f"{kind}/137"):
            first = await env.reset_async(seed=0, task=instance)
            assert first.reward is None and not first.done
            last = await SOLVERS[kind](env, first)
            assert (last.reward, last.done, last.truncated) == (1.0, True, False)


# ------------------------------------------------------------------------- pages of the tests

HOME = "https://home.test/"
PAGES = {
    "index": """<title>Home</title><h1>Home</h1><a href="/second.html">second</a>
        <a href="/second.html" target="_blank">other tab</a>
        <form action="/second.html"><input name="q" aria-label="Query"></form>
        <input type="password" value="secret"><p hidden>hidden words</p><p>shown words</p>
        <script>/* left out */</script>""",
    "second": "<title>Second</title><h1>Second</h1><button>a</button><button>b</button>",
    "chance": """<h1 id="h"></h1><p id="p"></p><script>
        const draw = () => { h.textContent = [Math.random(), crypto.randomUUID(),
            Date.now(), performance.now(), new Date().toString()].join(" "); };
        draw(); setInterval(() => { draw(); p.textContent += "."; }, 1000);</script>""",
    "dialogs": """<button onclick="document.title = confirm('Sure?') + ' ' + prompt('Who?', 'x')">
        ask</button><button onclick="for (;;) alert('again')">storm</button>""",
    "storm": """<button onclick="for (let n = 0; n < 30; n++)
        new Image().src = `https://h${n}.example/`; document.title = 'x'.repeat(5000)">others
        </button><button onclick="Promise.all([...Array(10).keys()].map((n) =>
        fetch(`/second.html?${n}`).then(() => 1, () => 0))).then((all) =>
        document.title = all.reduce((a, b) => a + b) + ' of 10')">own</button>""",
    "hang": "<button onclick='for (;;);'>hang</button><h1>here</h1>",
    "crash": """<button onclick="const all = []; for (;;) all.push(new Array(1e6).fill(0.5))">
        crash</button>""",
    "popups": """<button onclick="for (let i = 0; i < 30; i++) window.open('/second.html')">
        once</button>
        <button onclick="setInterval(() => window.open('/second.html'), 1)">for ever</button>
        <a href="/second.html" target="_blank">one</a>""",
    "redirects": "<h1>on and on</h1><script>location.href = '?' + Math.random()</script>",
    "timers": "<h1>busy</h1><script>setInterval(() => 0, 0)</script>",
    "huge": """<body><script>document.body.innerHTML = "<b>word </b>".repeat(25000)</script>""",
    "long": "<body>" + "<p>a line of text, among many</p>" * 2000,
    "halves": "<title>\\ud83d</title><p id=p></p><script>p.textContent = document.title = "
    "'half \\ud83d of it'</script>",
    "download": """<a href="/file.bin" download="../../file.bin">get it</a>""",
    "outside": """<img src="https://tracker.example/pixel.png"><h1>in</h1>
        <a href="https://elsewhere.example/">out</a><a href="file:///etc/passwd">file</a>
        <iframe src="https://frame.example/"></iframe>
        <script>fetch("http://127.0.0.1:PORT/").catch(() => 0);
        new WebSocket("ws://127.0.0.1:PORT/"); navigator.sendBeacon("http://127.0.0.1:PORT/b");
        document.title = typeof RTCPeerConnection;</script>""",
    "worker": """<script>navigator.serviceWorker?.register("/sw.js").then(
        (worker) => document.title = String(worker), () => document.title = "blocked")</script>""",
    "scroll": "<div style='height:5000px'>tall</div><button>at the end</button>",
    "shadowed": """<button style="display:none">hidden</button>
        <button style="position:fixed;top:0;left:0">under</button>
        <div style="position:fixed;inset:0;background:#fff">over</div>""",
    "keys": """<input id="i"><p id="p"></p><script>
        i.onkeydown = (event) => p.textContent += event.key + " "</script>""",
    "frame": """<h1>outer</h1><iframe src="/second.html"></iframe>""",
    "list": """<select><option value=1>one<option value=2>two</select>
        <i title=x>t</i><i title=y>u</i>""",
    "leaving": "<input><script>onbeforeunload = (event) => event.preventDefault()</script>",
}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, Path]:
    for name, page in PAGES.items():
        (tmp_path / f"{name}.html").write_text(page)
    (tmp_path / "file.bin").write_bytes(bytes(1000))
    return {"home.test": tmp_path}


@asynccontextmanager
async def at(
    home: dict[str, Path], page: str = "index", *, server: Any = None, **options: Any
) -> AsyncIterator[tuple[BrowserEnvironment, BrowserObservation]]:
    """Start a session that browses freely from a page of the tests."""
    async with browsing(options=server, sites=home) as env:
        yield env, await env.reset_async(seed=1, start_url=f"{HOME}{page}.html", options=options)


ALL_VIEWS = ["tree", "text", "html", "screenshot"]


async def test_an_observation_shows_the_page_in_each_of_four_views(home: dict[str, Path]) -> None:
    async with at(home, observe=ALL_VIEWS) as (_, seen):
        assert (seen.title, seen.url) == ("Home", f"{HOME}index.html")
        assert 'link "second" [ref=' in seen.tree
        assert "shown words" in seen.text and "hidden words" not in seen.text
        assert '<a href="/second.html">second</a>' in seen.html
        for left_out in ("script", "hidden words", "secret"):
            assert left_out not in seen.html
        assert seen.screenshot is not None and seen.screenshot.startswith(b"\x89PNG")
        assert (seen.reward, seen.goal, seen.cut) == (None, "", {})


async def test_views_that_nobody_asked_for_are_empty(home: dict[str, Path]) -> None:
    async with at(home, observe=["text"]) as (_, seen):
        assert (seen.tree, seen.html, seen.screenshot) == ("", "", None)
        assert seen.text


async def test_texts_are_bounded_and_say_what_is_missing(home: dict[str, Path]) -> None:
    async with at(home, "long", observe=ALL_VIEWS[:3], max_chars=500) as (env, seen):
        for view in ("tree", "text", "html"):
            assert 400 < len(getattr(seen, view)) <= 500
            assert seen.cut[view] > 50_000
        read = await do(env, Extract(selector="p"))
        assert read.extracted is not None and len(read.extracted) == 100


async def test_a_huge_page_is_not_made_a_tree_of(home: dict[str, Path]) -> None:
    async with at(home, "huge", observe=["tree", "text"]) as (_, seen):
        assert seen.tree == "" and seen.cut["text"] > 100_000
        assert [event.kind for event in seen.events] == ["too_large"]


async def test_halves_of_characters_do_not_break_an_observation(home: dict[str, Path]) -> None:
    async with at(home, "halves", observe=ALL_VIEWS[:3]) as (env, seen):
        seen = await do(env, Extract(selector="p"))
        assert seen.extracted == ["half \ufffd of it"]
        assert BrowserObservation.model_validate_json(seen.model_dump_json()).text == seen.text


# ------------------------------------------------------------------------- actions


async def test_elements_are_found_by_ref_selector_role_and_text(home: dict[str, Path]) -> None:
    async with at(home) as (env, seen):
        (ref,) = re.findall(r'link "second" \[ref=(\w+)\]', seen.tree)
        for element in ({"ref": ref}, {"selector": "a", "nth": 0}, {"text": "second"}):
            seen = await do(env, Click.model_validate(element))
            assert seen.title == "Second"
            await do(env, Back())


async def test_refs_reach_into_frames(home: dict[str, Path]) -> None:
    async with at(home, "frame") as (env, seen):
        (ref,) = re.findall(r'button "b" \[ref=(f\w+)\]', seen.tree)
        await do(env, Click(ref=ref))


async def test_history_goes_back_and_forward_and_says_where_it_ends(home: dict[str, Path]) -> None:
    async with at(home) as (env, _):
        early = await env.step_async(Back())
        assert "no page to go back to" in early.error
        await do(env, Click(text="second", nth=0))
        assert (await do(env, Back())).title == "Home"
        assert (await do(env, Forward(), Reload())).title == "Second"
        assert "forward" in (await env.step_async(Forward())).error


async def test_keys_are_pressed_and_typed(home: dict[str, Path]) -> None:
    async with at(home, "keys") as (env, _):
        seen = await do(env, Click(selector="#i"), Type(value="ab"), Press(key="Shift+ArrowLeft"))
        assert "a b Shift ArrowLeft" in seen.tree
        bad = await env.step_async(Press(key="Entre"))
        assert "Entre" in bad.error


async def test_the_page_scrolls_and_says_how_far(home: dict[str, Path]) -> None:
    async with at(home, "scroll") as (env, seen):
        assert (seen.scroll_y, seen.page_height > 5000) == (0, True)
        assert (await do(env, Scroll(dy=700))).scroll_y == 700
        assert (await do(env, Scroll(dy=-9999))).scroll_y == 0
        assert (await do(env, Scroll(role="button", name="at the end"))).scroll_y > 4000


async def test_tabs_are_opened_switched_and_closed(home: dict[str, Path]) -> None:
    async with at(home, max_tabs=2) as (env, _):
        seen = await do(env, NewTab(url=f"{HOME}second.html"))
        assert [(tab.title, tab.is_active) for tab in seen.tabs] == [
            ("Home", False),
            ("Second", True),
        ]
        assert "close one" in (await env.step_async(NewTab())).error
        assert (await do(env, SwitchTab(tab=0))).title == "Home"
        assert "no tab 2" in (await env.step_async(SwitchTab(tab=2))).error
        seen = await do(env, CloseTab(tab=1))
        assert len(seen.tabs) == 1
        assert "only tab" in (await env.step_async(CloseTab())).error


async def test_things_are_read_off_elements(home: dict[str, Path]) -> None:
    async with at(home, "list") as (env, _):
        assert (await do(env, Extract(selector="i"))).extracted == ["t", "u"]
        titles = Extract(selector="i", what="attribute", attribute="title")
        assert (await do(env, titles)).extracted == ["x", "y"]
        assert (await do(env, Extract(selector="i", nth=1, what="html"))).extracted == [
            '<i title="y">u</i>'
        ]
        await do(env, Select(selector="select", values=["two"]))
        assert (await do(env, Extract(selector="select", what="value"))).extracted == ["2"]
        whole = await do(env, Extract())
        assert whole.extracted is not None and "one" in whole.extracted[0]
        assert (await do(env, Wait())).extracted is None


ERRORS: list[tuple[str, AnyAction, str]] = [
    ("index", Click(selector="#none"), "no element matches selector='#none'"),
    ("index", Click(ref="e99"), "there is no 'e99'"),
    ("index", Click(selector="a["), "cannot be looked for"),
    ("second", Click(role="button"), "2 elements match role='button'"),
    ("second", Click(role="button", nth=2), "2 elements match"),
    ("shadowed", Click(text="hidden"), "not visible"),
    ("shadowed", Click(text="under"), "intercepts pointer events"),
    ("index", Fill(text="second", nth=0, value="x"), "fill failed"),
    ("index", Select(text="shown words", values=["x"]), "no list of options"),
    ("list", Select(selector="select", values=["three"]), "there are 'one', 'two'"),
    ("index", Check(text="shown words"), "check failed"),
    ("index", Navigate(url="https://elsewhere.example/"), "'elsewhere.example' may not be reached"),
    ("index", Navigate(url="file:///etc/passwd"), "https:// or http://"),
    ("index", Navigate(url="javascript:alert(1)"), "https:// or http://"),
    ("index", Navigate(url="view-source:https://home.test/"), "https:// or http://"),
    ("index", Navigate(url="chrome://settings"), "https:// or http://"),
    ("index", Navigate(url="data:text/html,x"), "https:// or http://"),
    ("index", Navigate(url="https://"), "no host"),
    ("index", NewTab(url="file:///etc/passwd"), "https:// or http://"),
]


def test_a_retry_that_ran_out_of_time_is_hindered_by_what_hindered_the_last() -> None:
    """The text is Playwright's own, for a click that timed out while waiting for a retry."""
    log = """Locator.click: Timeout 91ms exceeded.
Call log:
  - waiting for get_by_text("under")
    - locator resolved to <button>under</button>
  - attempting click action
    2 \u00d7 waiting for element to be visible, enabled and stable
      - element is visible, enabled and stable
      - scrolling into view if needed
      - done scrolling
      - <div></div> intercepts pointer events
    - retrying click action
    - waiting 20ms
    - waiting for element to be visible, enabled and stable
"""
    said = explained(PlaywrightTimeout(log), Click(text="under"))
    assert said.endswith("did not succeed in time: <div></div> intercepts pointer events")
    start = log.partition("      - element is visible")[0]
    assert "visible, enabled and stable" in explained(PlaywrightTimeout(start), Click(text="under"))


@pytest.mark.parametrize(("page", "action", "words"), ERRORS, ids=lambda one: str(one)[:60])
async def test_what_cannot_be_done_is_an_observation_that_says_why(
    page: str, action: AnyAction, words: str, home: dict[str, Path]
) -> None:
    async with at(home, page, action_timeout_s=4.0) as (env, before):
        seen = await env.step_async(action)
        assert words in seen.error
        assert (seen.url, seen.tree, seen.reward, seen.done) == (
            before.url,
            before.tree,
            None,
            False,
        )
        assert env.state.step_count == 1


# ------------------------------------------------------------------------- time and chance


@pytest.mark.slow
async def test_pages_have_the_same_time_and_chance_for_the_same_seed(home: dict[str, Path]) -> None:
    seen = []
    for seed in (1, 1, 2):
        async with browsing(sites=home, options={"observe": ALL_VIEWS}) as env:
            first = await env.reset_async(seed=seed, start_url=f"{HOME}chance.html")
            seen.append([first, *[await do(env, action) for action in CHANCES]])
    assert seen[0] == seen[1]  # screenshots too
    assert seen[0] != seen[2]


CHANCES: list[AnyAction] = [Wait(), Reload(), Wait(seconds=3.5), Navigate(url=f"{HOME}chance.html")]


async def test_time_moves_by_a_tenth_of_a_second_in_a_step(home: dict[str, Path]) -> None:
    async with at(home, "chance") as (env, seen):
        assert "Wed May 15 2024 10:00:00" in seen.tree
        for _ in range(8):
            seen = await do(env, Scroll(dy=1))
        assert '"."' not in seen.tree and ": ." not in seen.tree
        seen = await do(env, Wait(seconds=60))
        assert "." * 60 in seen.tree and "10:01:0" in seen.tree


async def test_time_is_real_where_nobody_asks_for_determinism(home: dict[str, Path]) -> None:
    async with at(home, "chance", deterministic=False, timezone="Asia/Tokyo") as (env, seen):
        assert "2024 10:00:00" not in seen.tree and "GMT+0900" in seen.tree
        late = Click(selector="#p:not(:empty)")  # appears after a second
        assert (await env.step_async(late)).error == ""


@pytest.mark.extended("opens hundreds of pages")
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_seed_and_actions_determine_the_whole_episode_of_every_task() -> None:
    async def episode(env: BrowserEnvironment, kind: str) -> list[BrowserObservation]:
        seen = [await env.reset_async(seed=11, task=kind, options={"observe": ALL_VIEWS})]
        seen.append(await SOLVERS[kind](env, seen[0]))
        return seen

    async with browsing() as one, browsing() as other:
        for kind in KINDS:
            first, second = await asyncio.gather(episode(one, kind), episode(other, kind))
            assert first == second
            assert first[-1].reward == 1.0


# ------------------------------------------------------------------------- the network


@dataclass
class HttpServer:
    """Run a web server on this machine that records its requests."""

    port: int = 0
    asked: list[str] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        self.asked.append(line.strip())
        path = line.split(" ")[1] if " " in line else ""
        answers = {
            "/out": f"302 Found\r\nLocation: http://localhost:{self.port}/secret",
            "/loop": "302 Found\r\nLocation: /loop",
            "/slow": None,
        }
        answer = answers.get(path, "200 OK\r\nContent-Type: text/html")
        if answer is None:
            await reader.read()  # until the browser gives up
        else:
            body = b"<h1>served</h1>"
            length = f"Content-Length: {len(body)}\r\nConnection: close"
            writer.write(f"HTTP/1.1 {answer}\r\n{length}\r\n\r\n".encode() + body)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
async def web() -> AsyncIterator[HttpServer]:
    served = HttpServer()
    server = await asyncio.start_server(served.handle, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    yield served
    server.close()


async def test_nothing_leaves_for_a_host_that_is_not_allowed(
    home: dict[str, Path], web: HttpServer
) -> None:
    page = home["home.test"] / "outside.html"
    page.write_text(page.read_text().replace("PORT", str(web.port)))
    async with at(home, "outside") as (env, seen):
        assert seen.title == "undefined"  # no WebRTC
        blocked = " ".join(event.text for event in seen.events if event.kind == "blocked")
        for host in ("tracker.example", "frame.example", "127.0.0.1"):
            assert host in blocked
        assert env.state.blocked_hosts["tracker.example"] == 1
        seen = await env.step_async(Click(text="out"))
        assert "elsewhere.example" in env.state.blocked_hosts
        seen = await do(env, Navigate(url=f"{HOME}outside.html"))
        seen = await env.step_async(Click(text="file"))
        assert seen.url == f"{HOME}outside.html"
    assert web.asked == []


@pytest.mark.slow
async def test_an_allowed_host_is_reached_and_its_redirects_elsewhere_are_not(
    web: HttpServer,
) -> None:
    base = f"http://127.0.0.1:{web.port}"
    async with browsing(options={"allowed_hosts": ["127.0.0.1"], "load_timeout_s": 3.0}) as env:
        seen = await env.reset_async(start_url=f"{base}/")
        assert 'heading "served"' in seen.tree
        seen = await env.step_async(Navigate(url=f"{base}/out"))
        assert "ERR_NAME_NOT_RESOLVED" in seen.error
        seen = await env.step_async(Navigate(url=f"{base}/loop"))
        assert "ERR_TOO_MANY_REDIRECTS" in seen.error
        seen = await env.step_async(Navigate(url=f"{base}/slow"))
        assert "did not succeed in time" in seen.error
        assert (await do(env, Navigate(url=f"{base}/"))).text == ""
    assert not any("secret" in line for line in web.asked)


@pytest.mark.slow
async def test_an_episode_narrows_the_hosts_and_never_widens_them(home: dict[str, Path]) -> None:
    async with browsing(
        sites=home, options={"allowed_hosts": ["*.example.org", "example.com"]}
    ) as env:
        for hosts in (["example.net"], ["*"], ["*.example.com"], ["example.org"]):
            with pytest.raises(Refused, match="may narrow that"):
                await env.reset_async(options={"allowed_hosts": hosts})
        with pytest.raises(Refused, match="without scheme"):
            await env.reset_async(options={"allowed_hosts": ["https://example.com"]})
        await env.reset_async(options={"allowed_hosts": ["a.example.org", "*.b.example.org"]})
        assert env.state.options["allowed_hosts"] == ["a.example.org", "*.b.example.org"]


def test_every_host_means_every_public_one() -> None:
    every = AllowedHosts.of(["*"])
    for host in ("example.org", "93.184.215.14"):
        assert every.let_in(host)
    local = "localhost a.localhost printer.local intranet 127.0.0.1 10.1.2.3 172.20.0.1 "
    for host in (local + "192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 [::1] ::1").split():
        assert not every.let_in(host), host
    assert AllowedHosts.of(["*", "localhost"]).let_in("localhost")


def test_hosts_are_read_from_the_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_ALLOWED_HOSTS", "example.org, *.example.com")
    assert BrowserEnvironment()._default.allowed_hosts == ("example.org", "*.example.com")
    assert BrowserEnvironment(options={"allowed_hosts": []})._default.allowed_hosts == ()
    monkeypatch.setenv("BROWSER_ALLOWED_HOSTS", "no host")
    with pytest.raises(Refused, match="no host"):
        BrowserEnvironment()


async def test_a_site_shows_no_file_outside_its_directory(home: dict[str, Path]) -> None:
    (home["home.test"].parent / "outside.txt").write_text("not for pages")
    (home["home.test"] / "link.txt").symlink_to(home["home.test"].parent / "outside.txt")
    async with at(home) as (env, _):
        for path in ("%2e%2e/outside.txt", "..%2foutside.txt", "link.txt", "%00", "nothing"):
            seen = await env.step_async(Navigate(url=HOME + path))
            assert "not for pages" not in seen.tree
            assert "no such page" in seen.tree


# ------------------------------------------------------------------------- misbehaving pages


async def test_a_dialog_is_cancelled_until_the_agent_says_otherwise(home: dict[str, Path]) -> None:
    async with at(home, "dialogs") as (env, _):
        seen = await do(env, button("ask"))
        assert seen.title == "false null"
        assert [event.text for event in seen.events] == [
            "confirm, cancelled: Sure?",
            "prompt, cancelled: Who?",
        ]
        seen = await do(env, Dialogs(accept=True, text="me"), button("ask"))
        assert seen.title == "true me"


async def test_a_page_that_does_not_stop_asking_is_ended(home: dict[str, Path]) -> None:
    async with at(home, "dialogs", action_timeout_s=2.0) as (env, _):
        seen = await env.step_async(button("storm"))
        assert seen.error and (seen.tree, seen.tabs[0].trouble) == (
            "",
            "it opened more than 20 dialogs in a step",
        )
        assert [event.kind for event in seen.events] == ["dialog"] * 20
        assert seen.events_left_out == 1
        assert "was ended" in (await env.step_async(button("ask"))).error
        assert (await do(env, Navigate(url=f"{HOME}second.html"))).title == "Second"


@pytest.mark.slow
async def test_a_page_that_hangs_is_ended_and_the_others_go_on(home: dict[str, Path]) -> None:
    async with (
        at(home, "hang", action_timeout_s=1.0, load_timeout_s=12.0) as (env, _),
        browsing() as other,
    ):
        await do(env, NewTab(url=f"{HOME}second.html"), SwitchTab(tab=0))
        await other.reset_async(seed=1)
        seen, meanwhile = await asyncio.gather(
            env.step_async(button("hang")), other.step_async(Wait())
        )
        assert not meanwhile.error
        assert "did not answer" in seen.tabs[0].trouble and not seen.tabs[1].trouble
        assert [event.kind for event in seen.events] == ["stopped"]
        assert (await do(env, SwitchTab(tab=1))).title == "Second"
        await do(env, SwitchTab(tab=0), Navigate(url=f"{HOME}hang.html"))
        assert len((await do(env, Wait())).tabs) == 2


@pytest.mark.slow
async def test_a_page_that_takes_all_memory_loses_its_tab_and_no_more(
    home: dict[str, Path],
) -> None:
    async with at(home, "crash") as (env, _):
        seen = await env.step_async(button("crash"))
        assert seen.tabs[0].trouble == "it crashed"
        assert (await do(env, Navigate(url=f"{HOME}second.html"))).title == "Second"


@pytest.mark.slow
async def test_popups_are_bounded_and_said(home: dict[str, Path]) -> None:
    async with at(home, "popups", max_tabs=3) as (env, _):
        seen = await do(env, button("once"))
        assert len(seen.tabs) == 2  # Chromium allows one popup per click
        assert [event.kind for event in seen.events] == ["popup"]
        await do(env, SwitchTab(tab=0), Click(text="one"))
        seen = await do(env, SwitchTab(tab=0), Click(text="one"))
        assert len(seen.tabs) == 3
        assert "closed at once" in seen.events[0].text
        seen = await do(env, SwitchTab(tab=0), button("for ever"), Wait(seconds=2))
        assert len(seen.tabs) == 3


async def test_a_page_that_leads_on_for_ever_is_said_to_be_busy(home: dict[str, Path]) -> None:
    async with at(home, load_timeout_s=2.0) as (env, _):
        seen = await env.step_async(Navigate(url=f"{HOME}redirects.html"))
        assert "busy" in [event.kind for event in seen.events]
        assert (await do(env, Navigate(url=f"{HOME}second.html"))).title == "Second"


async def test_a_page_that_was_held_still_runs_scripts_again(home: dict[str, Path]) -> None:
    async with at(home, load_timeout_s=2.0) as (env, _):
        await env.step_async(Navigate(url=f"{HOME}redirects.html"))
        window = env._window
        assert window is not None
        await window.live.activity.hold_still()
        assert "half" in (await do(env, Navigate(url=f"{HOME}halves.html"))).title


@pytest.mark.slow
async def test_a_page_is_given_the_same_patience_each_time_that_it_is_asked(
    home: dict[str, Path],
) -> None:
    """The time between two steps does not count against a page."""
    async with at(home, load_timeout_s=3.0) as (env, _):
        assert env._window is not None
        tab = env._window.live
        with move_on_after(0):
            await tab.is_at_rest()
        assert tab.is_silent, "as at the end of a step's time"
        await sleep(tab._patience_s)
        assert (await do(env, Navigate(url=f"{HOME}second.html"))).title == "Second"
        assert tab.is_live


async def test_timers_without_a_delay_do_not_stop_time(home: dict[str, Path]) -> None:
    async with at(home, "timers") as (env, seen):
        assert seen.events == [] and (await do(env, Wait(seconds=2))).events == []


async def test_downloads_are_offered_and_not_taken(home: dict[str, Path]) -> None:
    async with at(home, "download") as (env, _):
        seen = await do(env, Click(text="get it"))
        (event,) = seen.events
        assert (event.kind, "file.bin" in event.text) == ("download", True)
        assert seen.url == f"{HOME}download.html"


async def test_service_workers_are_blocked(home: dict[str, Path]) -> None:
    async with at(home, "worker") as (_, seen):
        assert seen.title == "undefined"  # Playwright's answer in place of a registration


async def test_a_page_cannot_keep_the_agent_from_leaving(home: dict[str, Path]) -> None:
    async with at(home, "leaving") as (env, _):
        seen = await do(env, Fill(selector="input", value="x"), Navigate(url=HOME))
        assert seen.title == "Home"


@pytest.mark.slow
async def test_a_dead_browser_is_an_error_and_the_next_reset_starts_another(
    home: dict[str, Path],
) -> None:
    mark = {"allowed_hosts": ["killed.example"]}  # so that no other test shares the browser
    async with browsing(sites=home, options=mark) as env, browsing(options=mark) as other:
        await env.reset_async(seed=1, start_url=f"{HOME}index.html")
        await other.reset_async(seed=1)
        kill_browsers("killed.example")
        for each in (env, other, env):
            with pytest.raises(BrowserGone, match="call reset"):
                await each.step_async(Wait())
        with pytest.raises(Refused):
            await env.render()
        assert (await env.reset_async(seed=1)).tree
        assert not (await env.step_async(Wait())).error
        with pytest.raises(BrowserGone):
            await other.step_async(Wait())
        assert (await other.reset_async(seed=1)).tree
    assert not processes("killed.example")


@pytest.mark.slow
async def test_the_death_of_playwrights_own_process_is_the_same_error() -> None:
    mark = {"allowed_hosts": ["driver.example"]}
    async with browsing(options=mark) as env:
        await env.reset_async(seed=1)
        (browser,) = processes("driver.example")
        os.kill(parent_of(browser), signal.SIGKILL)
        with pytest.raises(BrowserGone):
            await env.step_async(Wait())
        assert env.state.step_count == 0
        with futures_that_nobody_asks():
            assert (await env.reset_async(seed=1)).tree


@contextmanager
def futures_that_nobody_asks() -> Iterator[None]:
    """Ignore unretrieved errors, because Playwright leaves one when its process dies."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda loop, context: None)
    try:
        yield
        gc.collect()
    finally:
        loop.set_exception_handler(handler)


@pytest.mark.slow
async def test_a_browser_that_dies_in_a_step_is_the_same_error(home: dict[str, Path]) -> None:
    mark = {"allowed_hosts": ["killed.example"], "action_timeout_s": 10.0}
    async with browsing(sites=home, options=mark) as env:
        await env.reset_async(seed=1, start_url=f"{HOME}hang.html")
        step = asyncio.ensure_future(env.step_async(button("hang")))
        done, _ = await asyncio.wait([step], timeout=1.0)
        assert not done
        kill_browsers("killed.example")
        with pytest.raises(BrowserGone):
            await step


@pytest.mark.slow
async def test_the_last_session_closes_the_browser() -> None:
    mark = {"allowed_hosts": ["last.example"]}
    async with browsing(options=mark) as one:
        async with browsing(options=mark) as other:
            await asyncio.gather(one.reset_async(), other.reset_async())
            assert len(processes("last.example")) == 1
        assert processes("last.example")
        assert not (await one.step_async(Wait())).error
    assert not processes("last.example")
    await one.close_async()  # closing again does nothing


@pytest.mark.slow
async def test_closing_without_waiting_closes_all_the_same() -> None:
    env = BrowserEnvironment(options={"allowed_hosts": ["closed.example"]})
    env.close()  # before the first reset
    await env.reset_async()
    env.close()
    with fail_after(30):
        while processes("closed.example"):  # noqa: ASYNC110 - a process of others tells nobody
            await asyncio.sleep(0.05)


def processes(mark: str) -> list[int]:
    """Return the browsers that this process has started with a mark in their arguments."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (directory / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # the process has just ended
            continue
        is_browser = f"EXCLUDE {mark}" in arguments and "--type=" not in arguments
        if is_browser and is_ours(int(directory.name)):
            found.append(int(directory.name))
    return found


def is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = parent_of(pid)
        except OSError:
            return False
    return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_browsers(mark: str) -> None:
    for pid in processes(mark):
        os.kill(pid, signal.SIGKILL)


# ------------------------------------------------------------------------- starting


@pytest.mark.slow
async def test_a_browser_that_is_not_there_is_an_error_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BROWSER_EXECUTABLE", "/nowhere/chromium")
    async with browsing(options={"allowed_hosts": ["a.example"]}) as env:
        with pytest.raises(BrowserNotFound, match="BROWSER_EXECUTABLE"):
            await env.reset_async()
        monkeypatch.delenv("BROWSER_EXECUTABLE")
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
        with pytest.raises(BrowserNotFound, match="apt-get install chromium"):
            await env.reset_async()
        monkeypatch.undo()
        assert not (await env.reset_async()).done


async def test_what_is_no_browser_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsing(executable="/bin/false") as env:
        with pytest.raises(BrowserNotStarted, match="/bin/false would not start"):
            await env.reset_async()


# ------------------------------------------------------------------------- episodes and tasks


async def test_step_before_reset_and_after_done_is_refused_and_changes_nothing() -> None:
    async with browsing() as env:
        with pytest.raises(Refused, match="before reset"):
            await env.step_async(Wait())
        await env.reset_async(seed=1)
        assert (await env.step_async(Answer(text="?"))).done
        before = env.state.model_copy()
        with pytest.raises(Refused, match="after done"):
            await env.step_async(Wait())
        assert env.state == before
        assert not (await env.reset_async(seed=1)).done


async def test_the_limit_of_steps_truncates() -> None:
    async with browsing(task="click-button/1") as env:
        await env.reset_async(options={"max_steps": 2})
        assert not (await env.step_async(Wait())).done
        last = await env.step_async(Wait())
        assert (last.done, last.truncated, last.terminated, last.reward) == (True, True, False, 0.0)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"task": "clik-button"}, "did you mean 'click-button'"),
    ({"task": "login/140"}, "instances of login are 0 to 139"),
    ({"task": "login/07"}, "there is no task"),
    ({"task": "login/x"}, "there is no task"),
    ({"task": 3}, "task is a int"),
    ({"task": {"id": "login"}}, "expected one such as"),
    ({"task": {"id": "login/7", "goal": "other"}}, "has no goal"),
    ({"task": "login", "start_url": HOME}, "task or start_url"),
    ({"start_url": "file:///etc/passwd"}, "https:// or http://"),
    ({"start_url": "https://elsewhere.example"}, "may not be reached"),
    ({"options": {"viewport": [10, 10]}}, "viewport"),
    ({"options": {"observ": ["tree"]}}, "observ"),
    ({"options": {"timezone": "Mars/Base"}}, "Mars/Base"),
    ({"options": ["tree"]}, "options is a list"),
]


async def test_a_refused_reset_leaves_the_running_episode_as_it_was() -> None:
    async with browsing() as env:
        first = await env.reset_async(seed=4, episode_id="kept")
        before = env.state.model_copy()
        for wrong, words in WRONG:
            with pytest.raises(Refused, match=words):
                await env.reset_async(**wrong)
        assert env.state == before
        seen = await do(env, Extract())
        assert seen.tree == first.tree


async def test_wrong_submissions_score_nothing_and_end_the_task() -> None:
    async with browsing() as env:
        seen = await env.reset_async(task="choose-list/5")
        seen = await do(env, button("Submit"))
        assert (seen.reward, seen.done, seen.truncated) == (0.0, True, False)
        seen = await env.reset_async(task="fill-form/5")
        seen = await do(env, Fill(selector="[name=first]", value=seen.goal.split()[-2]))
        assert (await do(env, button("Submit"))).reward == pytest.approx(0.2)


async def test_an_address_that_is_typed_scores_nothing() -> None:
    async with browsing() as env:
        seen = await env.reset_async(task="click-button/5")
        wanted = quoted(seen.goal)[0]
        seen = await do(env, Navigate(url=f"{seen.url}send?pressed={wanted}"))
        assert (seen.reward, seen.done) == (0.0, False)
        await env.reset_async(task="click-link/5", options={"max_steps": 10})
        for number in range(6):
            seen = await do(env, Navigate(url=f"https://click-link.test/about/{number}"))
            assert (seen.reward, seen.done) == (0.0, False)


async def test_scripts_run_only_where_the_server_allows_them() -> None:
    script = Evaluate(script="document.title + 1")
    async with browsing() as env, browsing(allow_javascript=True) as free:
        await env.reset_async(seed=1)
        with pytest.raises(Refused, match="does not allow JavaScript"):
            await env.step_async(script)
        assert env.state.step_count == 0
        await free.reset_async(seed=1)
        assert (await do(free, script)).extracted == ["Buttons1"]
        assert "boom" in (await free.step_async(Evaluate(script="throw Error('boom')"))).error


async def test_a_fault_of_a_tasks_own_code_is_an_error_and_no_score() -> None:
    class Broken(Task):
        kind = "broken"

        def build(self, rng: Random) -> None:
            self.goal = "Break it."

        def page(self, request: SiteRequest) -> str | None:
            if request.path == "/":
                return "<a href='/break'>break</a>"
            raise ZeroDivisionError

    async with browsing("broken", tasks=[Broken]) as env:
        await env.reset_async()
        with pytest.raises(ZeroDivisionError):
            await env.step_async(Click(text="break"))
        assert not (await env.step_async(Navigate(url="https://broken.test/"))).error


async def test_goals_are_found_by_their_tasks_alone_and_hold_no_answer() -> None:
    env = BrowserEnvironment()
    assert env.list_splits() == ["train", "validation", "test"]
    assert [env.num_tasks(split) for split in env.list_splits()] == [1800, 360, 360]
    tasks = env.list_tasks("test")
    assert len({task.id for task in tasks}) == 360
    assert env.get_task("test", 5) == tasks[5] == env.get_task_range("test", 5, 6)[0]
    assert {task.kind for task in env.get_task_range("train", 0, len(KINDS))} == set(KINDS)
    with pytest.raises(IndexError):
        env.get_task("test", 360)
    with pytest.raises(Refused, match="did you mean 'train'"):
        env.num_tasks("trian")


async def test_a_task_of_the_list_can_be_reset_to() -> None:
    async with browsing() as env:
        task = env.get_task("validation", 3)
        seen = await env.reset_async(task=task.model_dump())
        assert (seen.goal, env.state.task) == (task.goal, task.id)
        assert env.state.max_steps == task.max_steps


@pytest.mark.slow
async def test_a_kind_draws_from_the_train_split_by_the_seed() -> None:
    async with browsing() as env:
        drawn = set()
        for seed in (0, -1, 2**70, None):
            await env.reset_async(seed=seed, task="login")
            assert env.state.task is not None
            drawn.add(env.state.task)
        assert len(drawn) > 2
        assert all(0 <= int(one.partition("/")[2]) < 100 for one in drawn)


async def test_rendering_is_a_screenshot_and_needs_a_page() -> None:
    async with browsing(options={"viewport": [640, 480]}) as env:
        with pytest.raises(Refused):
            await env.render()
        await env.reset_async(seed=1)
        picture = await env.render()
        assert picture.media_type == "image/png"
        assert struct.unpack(">II", picture.data[16:24]) == (640, 480)


@pytest.mark.slow
async def test_a_step_keeps_the_time_that_its_caller_gives(home: dict[str, Path]) -> None:
    async with at(home, "shadowed", action_timeout_s=30.0) as (env, _):
        began = asyncio.get_running_loop().time()
        seen = await env.step_async(Click(text="under"), timeout_s=4.0)
        assert "click" in seen.error
        assert asyncio.get_running_loop().time() - began < 4.0


# ------------------------------------------------------------------------- the contract


def follow(observation: BrowserObservation) -> AnyAction:
    """Press the first button, then wait."""
    found = re.search(r'button "[^"]*" \[ref=(e\d+)\]', observation.tree)
    return Wait(seconds=2) if found is None else Click(ref=found.group(1))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_environment_keeps_the_contract() -> None:
    """Pressing the button of `login` for the third time ends the episode."""
    check_environment(partial(BrowserEnvironment, "login"), actions=follow, max_steps=3)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_rewards_are_as_they_are_declared(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<h1>Home</h1>")

    def press(seen: BrowserObservation) -> AnyAction:
        return button(quoted(seen.goal)[0])

    def fill_one(seen: BrowserObservation) -> AnyAction:
        first = seen.goal.split()[-2]
        is_filled = first in seen.tree
        return button("Submit") if is_filled else Fill(selector="[name=first]", value=first)

    factory = partial(BrowserEnvironment, sites={"home.test": tmp_path})
    with BrowserEnv.local(factory).sync() as env:
        solved = rewards.played(env, press, task="click-button/5")
        in_part = rewards.played(env, fill_one, task="fill-form/5")
        cut_off = rewards.played(env, lambda seen: Wait(), task="login/5", options={"max_steps": 2})
        free = rewards.played(env, lambda seen: Wait(), start_url="https://home.test/", max_steps=1)
    assert (rewards.worth(solved), rewards.parts(solved)) == (1.0, {"task": 1.0})
    assert rewards.worth(in_part) == pytest.approx(0.2)
    assert cut_off[-1].truncated and rewards.worth(cut_off) == 0.0
    assert free[-1].reward is None and rewards.worth(free) is None


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_client_plays_over_a_socket() -> None:
    with serving(app) as url:
        async with BrowserEnv(base_url=url) as env:
            options = {"observe": ["tree", "screenshot"]}
            result = await env.reset(seed=3, task="click-button", options=options)
            assert result.observation.screenshot is not None
            result = await env.step(button(quoted(result.observation.goal)[0]))
            assert (result.reward, result.done) == (1.0, True)
            assert (await env.state()).task is not None
            with pytest.raises(ValidationFailed):
                await env.step({"kind": "click"})  # type: ignore[arg-type]
            with pytest.raises(ExecutionFailed, match="after done"):
                await env.step(Wait())
            await env.reset(seed=3, task="click-button")
            with pytest.raises(StepTimeout):
                await env.step(Wait(), timeout_s=0.001)
            assert not (await env.step(Wait())).observation.error


def test_the_client_side_does_not_import_playwright() -> None:
    code = "import sys, browser_env; assert 'playwright' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "click"},
        {"kind": "click", "ref": "e1", "text": "x"},
        {"kind": "click", "name": "x"},
        {"kind": "click", "ref": "5"},
        {"kind": "clik", "ref": "e1"},
        {"kind": "press", "nth": 1, "key": "a"},
        {"kind": "drag", "ref": "e1", "to": {}},
        {"kind": "extract", "what": "attribute"},
        {"kind": "wait", "seconds": -1},
        {"kind": "navigate"},
        {"kind": "fill", "ref": "e1", "value": "x", "text": "y"},
    ],
    ids=str,
)
def test_actions_that_say_too_little_or_too_much_are_invalid(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(AnyAction).validate_python(fields)


# ------------------------------------------------------------------------- limits of a page


async def test_what_a_page_asks_for_is_bounded_and_counted(
    home: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hosts, events and title have limits, and the next page works as before."""
    monkeypatch.setattr("browser_env.server.window.MAX_HOSTS", 10)
    async with at(home, "storm") as (env, _):
        seen = await do(env, button("others"))
        assert len(env.state.blocked_hosts) == 10
        assert (len(seen.events), seen.events_left_out) == (MAX_EVENTS, 30 - MAX_EVENTS)
        assert len(seen.title) == MAX_TITLE
        seen = await do(env, Navigate(url=f"{HOME}second.html"))
        assert seen.title == "Second" and seen.events == []


async def test_requests_of_a_step_have_an_end(
    home: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("browser_env.server.window.MAX_REQUESTS", 5)
    async with at(home, "storm") as (env, _):
        seen = await do(env, button("own"))
        assert seen.title == "5 of 10"
        assert "(over 5 requests in a step)" in seen.events[0].text
        assert (await do(env, Navigate(url=f"{HOME}second.html"))).title == "Second"


def test_a_form_and_a_file_of_a_site_have_bounds(tmp_path: Path) -> None:
    def posted(size: int) -> str:
        return SiteRequest.of("POST", "http://a/", "", b"a=" + b"x" * size).posted("a")

    assert posted(MAX_FORM) == "" and len(posted(MAX_FORM - 2)) == MAX_FORM - 2
    many = "&".join(f"f{n}=1" for n in range(1001))
    assert SiteRequest.of("POST", "http://a/", "", many.encode()).form == {}
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    (tmp_path / "small.txt").write_text("small")
    site = Folder(tmp_path)
    with kept_below(8 * MIB):
        refused = site.answer(SiteRequest("GET", "/large.txt"))
    assert (refused.status, refused.body) == (413, f"more than {MAX_FILE} bytes")
    assert site.answer(SiteRequest("GET", "/small.txt")).body == b"small"
