"""Who may use the page, and what becomes of their sessions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect
from support.relay import Relay
from support.servers import serving
from support.shown import Talker
from support.waiting import wait_until
from websockets.sync.client import connect

from openenv import GenericEnvClient, create_app
from openenv.server import Key, Role

pytestmark = [pytest.mark.slow, pytest.mark.blocks_the_loop]

Open = Callable[..., Page]
ORCHESTRATOR, OBSERVER = "orchestrator-key-0123456789", "observer-key-0123456789"


def stage(page: Page) -> Any:
    return page.get_by_role("region", name="Environment", exact=True)


@pytest.mark.slow("waits until a closed tab is missed")
def test_each_visitor_has_a_session_which_ends_with_the_tab(
    chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    app = create_app(Talker, max_concurrent_envs=2)
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        pages = [chromium.new_page() for _ in range(2)]
        for page in pages:
            page.goto(f"{url}/web/")
        assert manager.active_sessions == 0  # to look takes no place
        for number, page in enumerate(pages):
            page.get_by_role("button", name="Start an episode").click()
            expect(stage(page)).to_contain_text("its beginning")
            for step in range(1, number + 2):
                page.get_by_role("button", name="Greet").click()
                expect(stage(page)).to_contain_text(f"Episode 1, step {step}")
        expect(stage(pages[0])).to_contain_text("Episode 1, step 1")
        expect(stage(pages[1])).to_contain_text("Episode 1, step 2")
        assert manager.active_sessions == 2
        late = chromium.new_page()
        late.goto(f"{url}/web/")
        late.get_by_role("button", name="Start an episode").click()
        expect(late.get_by_text("The server is full: place 1 of 1 in the queue.")).to_be_visible()
        pages[0].close()
        expect(stage(late)).to_contain_text("its beginning")
        pages[1].close()
        late.close()
        wait_until(lambda: manager.active_sessions == 0)


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_in_production_nobody_controls_the_world(open_page: Open) -> None:
    page = open_page(lambda: create_app(Talker, mode="production"))
    expect(page.get_by_role("link", name="Watch")).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("link", name="Play")).to_have_count(0)
    root = page.url.partition("/web/")[0]
    for path in ("/web/reset", "/web/step"):
        assert httpx.post(root + path).status_code == 404


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_a_server_with_keys_shows_nothing_before_it_has_one(
    open_page: Open, chromium: Browser
) -> None:
    keys = [
        Key(ORCHESTRATOR, Role.ORCHESTRATOR, name="me"),
        Key(OBSERVER, Role.OBSERVER, name="eyes"),
    ]
    with serving(create_app(Talker, keys=keys)) as url:
        page = chromium.new_page()
        page.goto(f"{url}/web/")
        page.get_by_label("Key", exact=True).fill("wrong")
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know the key")
        assert "Talker" not in page.content()
        page.get_by_label("Key", exact=True).fill(ORCHESTRATOR)
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("button", name="Start an episode").click()
        expect(stage(page)).to_contain_text("its beginning")
        assert ORCHESTRATOR not in page.url
        page.reload()  # it is kept for the tab
        expect(page.get_by_role("button", name="Start an episode")).to_be_visible()
        page.close()

        page = chromium.new_page()
        page.goto(f"{url}/web/#watch")
        page.get_by_label("Key", exact=True).fill(OBSERVER)
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_text("live")).to_be_visible()
        page.get_by_role("link", name="Play").click()
        page.get_by_role("button", name="Start an episode").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.close()


def test_a_session_is_watched_as_it_goes_and_is_not_touched(open_page: Open) -> None:
    app = create_app(Talker)
    page = open_page(lambda: app, "/web/#watch")
    (manager,) = app.state.openenv_managers
    root = page.url.partition("/web/")[0]
    expect(page.get_by_text("live", exact=True)).to_be_visible()  # what it asked for is there
    wait_until(lambda: not manager.sessions())  # and who answered is closed
    with GenericEnvClient(base_url=root).sync() as env:
        env.reset(words=["so"])
        (session,) = manager.sessions()
        active = session.last_activity
        page.get_by_role("button", name=f"Follow session {session.id}").click()
        expect(page.get_by_text(f"following session {session.id}, from step 0")).to_be_visible()
        assert session.last_activity == active
        env.step({"word": "hello"})
        expect(stage(page)).to_contain_text("Step 1")
        expect(stage(page)).to_contain_text("hello")
        expect(page.get_by_text("step 0.1, reward 0.5")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        recorder = session.recorder
        assert recorder is not None
        wait_until(lambda: not recorder.followers)
        env.step({"word": "unseen"})
        page.get_by_role("button", name=f"Follow session {session.id}").click()
        expect(page.get_by_text("from step 2")).to_be_visible()
    expect(page.get_by_text("the session has ended")).to_be_visible()


def test_the_page_works_below_a_path(open_page: Open) -> None:
    def mounted() -> FastAPI:
        outer = FastAPI()
        outer.mount("/some/where", create_app(Talker))
        return outer

    page = open_page(mounted, "/some/where/")
    assert page.url.endswith("/some/where/web/")
    page.get_by_role("button", name="Start an episode").click()
    expect(stage(page)).to_contain_text("its beginning")
    page.get_by_role("link", name="Docs").click()
    expect(page.get_by_text("/some/where/mcp")).to_be_visible()


def test_a_page_that_was_left_and_come_back_to_says_that_its_session_is_gone(
    open_page: Open,
) -> None:
    app = create_app(Talker)
    (manager,) = app.state.openenv_managers
    page = open_page(lambda: app)
    page.get_by_role("button", name="Start an episode").click()
    expect(stage(page)).to_contain_text("its beginning")
    page.evaluate("window.dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    wait_until(lambda: manager.active_sessions == 0)
    expect(page.get_by_role("alert")).to_contain_text("The session is lost: the page was left")
    page.get_by_role("button", name="Start an episode").click()
    expect(stage(page)).to_contain_text("Episode 1, its beginning")


def test_the_page_is_let_in_behind_a_proxy_that_ends_tls(url_of_proxied: str) -> None:
    """As a Space is: another name, `X-Forwarded-Host`, and the origin of an https page."""
    with connect(
        f"ws{url_of_proxied[4:]}/ws",
        subprotocols=["openenv.v1.json"],  # type: ignore[list-item]
        additional_headers={
            "Origin": "https://someone-talker.hf.space",
            "X-Forwarded-Host": "someone-talker.hf.space",
        },
    ) as socket:
        assert json.loads(socket.recv(10))["type"] == "hello"


@pytest.fixture
def url_of_proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    with serving(create_app(Talker)) as url:
        yield url


def test_an_environment_that_crashes_is_said_and_another_episode_may_be_begun(
    open_page: Open,
) -> None:
    page = open_page(lambda: create_app(Talker, workers=1))
    start = page.get_by_role("button", name="Start an episode")
    start.dblclick()  # who is impatient gets one session all the same
    expect(stage(page)).to_contain_text("its beginning", timeout=30_000)
    page.get_by_role("textbox", name="Word", exact=True).fill("die")
    page.get_by_role("button", name="Step", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("The session is lost")
    start.click()
    expect(stage(page)).to_contain_text("Episode 1, its beginning", timeout=30_000)
    page.get_by_role("button", name="Greet").click()
    expect(stage(page)).to_contain_text("Episode 1, step 1")


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_a_broken_connection_is_gone_on_with_and_a_lost_session_is_said(
    chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    app = create_app(Talker)
    (manager,) = app.state.openenv_managers
    with serving(app) as url, contextlib.closing(Relay(url)) as relay:
        page = chromium.new_page()
        page.goto(f"{relay.url}/web/")
        page.get_by_role("button", name="Start an episode").click()
        expect(stage(page)).to_contain_text("its beginning")
        relay.cut()
        page.get_by_role("button", name="Greet").click()
        expect(stage(page)).to_contain_text("Episode 1, step 1")
        expect(page.get_by_text("connected", exact=True)).to_be_visible()
        (session,) = manager.sessions()
        assert session.step_count == 1  # exactly once

        relay.refuse()
        relay.cut()
        expect(page.get_by_text("interrupted; going on…")).to_be_visible()
        manager.connections.clear()  # as where the time of grace is over
        relay.accept_again()
        expect(page.get_by_role("alert")).to_contain_text("The session is lost")
        expect(stage(page)).to_contain_text("Episode 1, step 1")  # what it showed stays
        page.get_by_role("button", name="Start an episode").click()
        expect(stage(page)).to_contain_text("Episode 1, its beginning")
        page.close()
