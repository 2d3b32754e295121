"""What the page shows of observations, in a real Chromium; hostile ones stay harmless."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from browser_env.server.chromium import EXECUTABLE, NAMES_ON_PATH, wants_sandbox
from openenv.arrays import as_base64, write_png

# Playwright's synchronous calls return within a callback of its loop: our own time counts as the
# callback's.
pytestmark = [
    pytest.mark.extended("of the web page; test_page.py shows an episode"),
    pytest.mark.slow,
    pytest.mark.blocks_the_loop,
]

ASSETS = Path(__file__).parents[2] / "src" / "openenv" / "web" / "assets"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>bench</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css"><link rel="stylesheet" href="/view.css">
<script type="module" src="/bench.js"></script><main id="stage" class="card"></main>"""
BENCH = b"""
import * as view from "/view.js";
import * as tree from "/tree.js";
import * as plot from "/plot.js";
import { linesOf } from "/ansi.js";
const stage = document.getElementById("stage");
const violations = [];
document.addEventListener("securitypolicyviolation", ({ violatedDirective }) =>
  violations.push(violatedDirective));
const put = (made) => { view.release(stage); stage.replaceChildren(made); };
const show = (observation, options) => put(view.renderObservation(observation, options));
Object.assign(window, { view, tree, plot, linesOf, violations, put, show });
"""
TIMES = "\u00d7"
HARMFUL = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'


class Bench(ThreadingHTTPServer):
    """Serves the page's modules on loopback, and notes who connects and what is asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.asked: list[str] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()


class Asked(BaseHTTPRequestHandler):
    """Answers with a file of the assets, or with the page that imports them."""

    server: Bench

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = {"/": PAGE, "/bench.js": BENCH}.get(self.path)
        file = ASSETS / self.path.lstrip("/")
        if body is None and file.is_file():
            body = file.read_bytes()
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", TYPES.get(file.suffix, "text/html"))
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body or b"")

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[], Bench]]:
    """Start servers for the length of the module."""
    servers: list[Bench] = []

    def started() -> Bench:
        server = Bench()
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    yield started
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def bench(start: Callable[[], Bench]) -> Bench:
    return start()


@pytest.fixture(scope="module")
def elsewhere(start: Callable[[], Bench]) -> Bench:
    """A server that the page has nothing to do with."""
    return start()


def chromium() -> str | None:
    """The browser of this machine; None is Playwright's own download."""
    names = (os.environ.get(EXECUTABLE), *NAMES_ON_PATH)
    return next(filter(None, (shutil.which(name) for name in names if name)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            chromium_sandbox=wants_sandbox(),
            args=["--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, bench: Bench) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 900, "height": 700})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(10_000)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(bench.url)
    page.wait_for_function("() => window.show")
    yield page
    harmed = page.evaluate("() => window.harmed")
    context.close()
    assert harmed is None
    assert troubles == []


def show(page: Page, observation: object, **options: object) -> None:
    page.evaluate("([observation, options]) => show(observation, options)", [observation, options])


def field(page: Page, name: str) -> Any:
    return page.locator(f'[data-name="{name}"]')


def pixel(page: Page, x: int, y: int, index: int = 0) -> list[int]:
    """Red, green, blue and opacity of a pixel of a canvas."""
    found: list[int] = (
        page.locator("canvas")
        .nth(index)
        .evaluate(
            "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]", [x, y]
        )
    )
    return found


def wire(array: npt.NDArray[Any]) -> dict[str, Any]:
    return as_base64(array)


# ------------------------------------------------------------------ kinds


def test_fields_are_told_apart_by_name_and_value(page: Page) -> None:
    png = base64.b64encode(write_png(np.zeros((8, 8, 3), np.uint8))).decode()
    start = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
    cases: list[tuple[str, object, str]] = [
        ("reward", None, "empty"),
        ("moves", [], "empty"),
        ("score", 12, "number"),
        ("is_check", False, "boolean"),
        ("goal", "Reach the exit.", "string"),
        ("legal_actions", ["up", "down"], "list"),
        ("legal_actions", list(range(200)), "list"),
        ("state", [0.5] * 200, "array"),
        ("board", [[0, 2], [4, 0]], "board"),
        ("board", [["X", "", None], ["", "O", ""]], "board"),
        ("grid", [[1, 2], [3]], "json"),
        ("pixels", [[0] * 40 for _ in range(40)], "array"),
        ("frame", {"dtype": "|u1", "shape": [1], "data": "AA=="}, "array"),
        ("fen", start, "chess"),
        ("position", start, "chess"),
        ("fen", "not/a/position w - - 0 1", "string"),
        ("shot", png, "image"),
        ("shot", f"data:image/png;base64,{png}", "image"),
        ("shot", {"media_type": "image/png", "bytes": png}, "image"),
        ("file", {"media_type": "text/html", "bytes": png}, "json"),
        ("text", "iVBORw0KGgo is how they begin, all of those files", "string"),
        ("drawing", "<svg><g/></svg>", "svg"),
        ("drawing", '<?xml version="1.0"?>\n<svg/>', "svg"),
        ("page", "<!DOCTYPE html><p>Hello", "html"),
        ("html", "<p>Hello", "html"),
        ("text", "<p>Hello", "string"),
        ("said", "\x1b[31mred\x1b[0m", "terminal"),
        ("stdout", "plain", "terminal"),
        ("readme", "plain", "markdown"),
        ("prompt", "# Title\n\nSome **bold** text", "markdown"),
        ("prompt", "See:\n```python\nx = 1\n```\n", "markdown"),
        ("code", "# a comment\nimport os\n# another\nx = 1", "text"),
        ("tree", '- document "Shop":\n  - link "Cart"\n  - button "Buy"', "text"),
        ("tabs", [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}], "table"),
        ("tabs", [{"id": 1}], "json"),
        ("messages", [{"role": "user", "content": "hi"}], "chat"),
        ("messages", [{"sender_id": -1, "content": "hi", "category": "PROMPT"}], "chat"),
        ("metadata", {"a": 1}, "json"),
    ]
    pairs = [[name, value] for name, value, _ in cases]
    kinds = page.evaluate("pairs => pairs.map(([name, value]) => view.kindOf(name, value))", pairs)
    assert [
        (name, value, kind) for (name, value, _), kind in zip(cases, kinds, strict=True)
    ] == cases


def test_short_fields_stand_together_and_empty_ones_in_one_line(page: Page) -> None:
    show(
        page,
        {"score": 3, "done": False, "goal": "Win", "moves": ["a1"], "result": None, "notes": ""},
    )
    expect(page.locator("dl.view-values > div")).to_have_count(4)
    assert field(page, "score").locator("dd").inner_text().strip() == "3"
    expect(page.locator(".view-note")).to_have_text("empty: result, notes")
    show(page, {"choices": list(range(100))}, legalNames=["choices"])
    expect(field(page, "choices").locator(".view-word")).to_have_count(60)
    field(page, "choices").get_by_role("button", name="show more").click()
    expect(field(page, "choices").locator(".view-word")).to_have_count(100)


def test_what_is_no_object_is_shown_too(page: Page) -> None:
    for value in (None, 5, "text", [1, 2], [[["deep"]]]):
        show(page, value)
    expect(page.locator(".view")).to_be_visible()


# ------------------------------------------------------------------ hostile text


def test_hostile_strings_stay_text_wherever_they_stand(page: Page) -> None:
    observation = {
        HARMFUL: HARMFUL,
        "short": HARMFUL,
        "long": f"{HARMFUL}\n" * 30,
        "words": [HARMFUL, HARMFUL],
        "rows": [{HARMFUL: HARMFUL, "b": 1}, {HARMFUL: HARMFUL, "b": 2}],
        "messages": [{"role": HARMFUL, "content": HARMFUL}],
        "info": {HARMFUL: [HARMFUL, {HARMFUL: HARMFUL}]},
        "stdout": f"\x1b[31m{HARMFUL}\x1b]0;{HARMFUL}\x07",
        "image": {"media_type": "image/png", "bytes": HARMFUL},
        "array": {"dtype": HARMFUL, "shape": [HARMFUL], "data": HARMFUL},
        "__proto__x": {"__proto__": {"a": HARMFUL}},
    }
    show(page, observation, rendering={"text": HARMFUL})
    page.evaluate("() => document.querySelectorAll('.view-raw').forEach((one) => one.click())")
    found = page.evaluate(
        """value => ({
          made: document.querySelectorAll("#stage img, #stage script, #stage [onerror]").length,
          told: document.getElementById("stage").textContent.split(value).length - 1,
        })""",
        HARMFUL,
    )
    assert found["made"] == 0
    assert found["told"] > 40  # each of them, most of them more than once


# ------------------------------------------------------------------ frames

# Presses what there is to press, and gives all else the time to happen.
NOTHING_HAPPENS = """async () => {
  const frame = document.querySelector("iframe");
  const inside = frame.contentDocument;
  const text = inside.body.textContent;
  for (const one of inside.querySelectorAll("a, area, button, input, summary, div")) {
    one.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    one.focus?.();
  }
  for (const form of inside.forms) form.requestSubmit?.();
  await new Promise((resolve) => setTimeout(resolve, 400));
  return { address: frame.contentDocument?.location.href ?? "elsewhere", text };
}"""


def loading(base: str) -> str:
    """HTML that loads from there in each way that we know of."""
    return f"""
      <base href="{base}/base/"><link rel="preconnect" href="{base}"><link rel="prefetch"
      href="{base}/prefetch"><link rel="stylesheet" href="{base}/link.css"><link rel="preload"
      as="script" href="{base}/preload.js"><link rel="icon" href="{base}/icon.png">
      <script src="{base}/script.js"></script><script type="module" src="{base}/module.js">
      </script><style>@import "{base}/import.css"; p {{ background: url({base}/css.png) }}
      @font-face {{ font-family: f; src: url({base}/font.woff) }} p {{ font-family: f }}</style>
      <p style="background: url({base}/style.png)">a</p>
      <img src="{base}/img.png" srcset="{base}/set.png 2x" onerror="parent.harmed=1">
      <picture><source srcset="{base}/source.png"><img src="{base}/picture.png"></picture>
      <video src="{base}/video" poster="{base}/poster.png" autoplay></video>
      <audio src="{base}/audio" autoplay></audio><table background="{base}/table.png"></table>
      <iframe src="{base}/iframe"></iframe><iframe srcdoc="<script>top.harmed=1</script>">
      </iframe><object data="{base}/object"></object><embed src="{base}/embed">
      <svg><image href="{base}/svg.png"/><use href="{base}/use.svg#a"/><script>parent.harmed=1
      </script></svg><script>fetch("{base}/fetch")</script>"""


def leading(base: str) -> str:
    """HTML that leads there in each way that we know of, unasked or when it is pressed."""
    return f"""<meta http-equiv="refresh" content="0; url={base}/refresh">
      <svg><a href="{base}/svg-link"><text>link</text></a><a><animate attributeName="href"
      values="{base}/animated"/><text>moving</text></a></svg>
      <a href="{base}/link" ping="{base}/ping">away</a><a href="{base}/top" target="_top">up</a>
      <a href="{base}/blank" target="_blank">new</a><a href="{base}/d" download>down</a>
      <map name="m"><area href="{base}/area" shape="rect" coords="0,0,9,9"></map>
      <form action="{base}/form" method="post"><input name="a"><button>go</button>
      <button formaction="{base}/formaction">other</button></form>
      <form action="{base}/get" target="_top"><input type="submit"></form>"""


RUNNING = """<p>what is shown</p><script>parent.harmed=1; window.harmed=1</script>
  <a href="javascript:parent.harmed=1">run</a><div onclick="parent.harmed=1">press</div>
  <a href="data:text/html,<script>top.harmed=1</script>">data</a>
  <details open ontoggle="parent.harmed=1"><summary>more</summary></details>
  <input autofocus onfocus="parent.harmed=1"><svg onload="parent.harmed=1"></svg>
  <img src="data:," onerror="parent.harmed=1"><form action="javascript:parent.harmed=1"></form>"""


def test_nothing_in_a_frame_runs_loads_or_leads_anywhere(
    page: Page, bench: Bench, elsewhere: Bench
) -> None:
    connected, asked = elsewhere.connections, len(bench.asked)
    page.evaluate(
        """html => new Promise((resolve) => {
          const made = view.frame(html);
          made.addEventListener("load", resolve, { once: true });
          put(made);
        })""",
        RUNNING + "".join(f(url) for f in (loading, leading) for url in (bench.url, elsewhere.url)),
    )
    outcome = page.evaluate(NOTHING_HAPPENS)
    left = "script, iframe, object, embed, link, base, meta[http-equiv=refresh], [href], [onload]"
    assert page.frame_locator("iframe").locator(left).count() == 0
    assert outcome["address"] == "about:srcdoc"
    assert "what is shown" in outcome["text"]
    assert bench.asked[asked:] == []
    assert elsewhere.connections == connected
    assert page.url == f"{bench.url}/"
    assert len(page.context.pages) == 1


def test_the_fence_alone_holds_what_was_not_taken_out(
    page: Page, bench: Bench, elsewhere: Bench
) -> None:
    """But for hints to connect, and links to this server: these have to be taken out."""
    html = RUNNING + loading(bench.url) + loading(elsewhere.url) + leading(elsewhere.url)
    asked = len(bench.asked)
    page.evaluate(
        """html => new Promise((resolve) => {
          const made = view.frame("<p>what is shown</p>");
          const [before, after] = made.srcdoc.split("<p>what is shown</p>");
          made.srcdoc = before + html + after;
          made.addEventListener("load", resolve, { once: true });
          put(made);
        })""",
        html,
    )
    assert page.frame_locator("iframe").locator("script").count() > 2
    page.evaluate(NOTHING_HAPPENS)
    assert elsewhere.asked == []
    assert bench.asked[asked:] == []
    assert len(page.context.pages) == 1


def test_a_frame_is_sandboxed_named_and_keeps_its_own_pictures(page: Page) -> None:
    dot = base64.b64encode(write_png(np.full((3, 4, 3), 9, np.uint8))).decode()
    html = f'<h1>Shop</h1><img src="data:image/png;base64,{dot}"><a href="/cart">Cart</a>'
    show(page, {"html": html})
    frame = page.locator("iframe")
    assert frame.get_attribute("sandbox") == "allow-same-origin"
    assert frame.get_attribute("title") == "html"
    inside = page.frame_locator("iframe")
    expect(inside.locator("h1")).to_have_text("Shop")
    assert inside.locator("img").evaluate("img => [img.naturalWidth, img.naturalHeight]") == [4, 3]
    assert inside.locator("a").get_attribute("title") == "/cart"
    assert inside.locator("a").get_attribute("href") is None
    policy = inside.locator("meta").first.get_attribute("content")
    assert policy is not None
    assert "default-src 'none'" in policy


def test_a_frame_is_as_high_as_its_content_up_to_a_limit(page: Page) -> None:
    page.evaluate("html => put(view.frame(html))", '<div style="height: 333px">a</div>')
    frame = page.locator("iframe")
    page.wait_for_function("() => document.querySelector('iframe').clientHeight > 300")
    assert 333 <= frame.evaluate("one => one.clientHeight") < 370
    page.evaluate("html => put(view.frame(html))", '<div style="height: 9000px">a</div>')
    page.wait_for_function("() => document.querySelector('iframe').clientHeight > 500")
    assert frame.evaluate("one => one.offsetHeight") == 640
    root = page.frame_locator("iframe").locator("html")
    assert root.evaluate("one => { one.scrollTop = 500; return one.scrollTop }") == 500


def test_a_frame_follows_the_width_of_the_page(page: Page) -> None:
    page.evaluate("html => put(view.frame(html))", "<p>" + "word " * 300)
    page.wait_for_function("() => document.querySelector('iframe').clientHeight > 60")
    wide = page.locator("iframe").evaluate("one => one.clientHeight")
    page.set_viewport_size({"width": 400, "height": 700})
    page.wait_for_function("was => document.querySelector('iframe').clientHeight > was", arg=wide)
    page.set_viewport_size({"width": 900, "height": 700})
    page.wait_for_function("was => document.querySelector('iframe').clientHeight === was", arg=wide)


def test_markdown_is_shown_in_a_frame_of_the_pages_colours(page: Page) -> None:
    text = "# Rules\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" + HARMFUL
    show(page, {"readme": text})
    inside = page.frame_locator("iframe")
    expect(inside.locator("h1")).to_have_text("Rules")
    expect(inside.locator("li")).to_have_count(2)
    expect(inside.locator("td")).to_have_count(2)
    expect(page.locator("#stage h1")).to_have_count(0)
    light = inside.locator("h1").evaluate("one => getComputedStyle(one).color")
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark' }")
    expect(inside.locator("h1")).not_to_have_css("color", light)
    show(page, {"readme": ">" * 20_000})  # deeper than the parser can go
    expect(field(page, "readme")).to_contain_text("cannot be shown")


# ------------------------------------------------------------------ terminals


def test_a_terminal_shows_what_a_terminal_would(page: Page) -> None:
    cases = {
        "plain": "plain",
        "10%\r100%": "100%",
        "one\r\ntwo": "one\ntwo",
        "abc\b\bX": "aXc",
        "a\tb": "a       b",
        "loading...\r\x1b[Kdone": "done",
        "\x1b]0;a title\x07text": "text",
        "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
        "\x1b[2J\x1b[1;1H\x1b(B\x1b=home\x1b[?25l": "home",
        "bell\x07\x00": "bell",
        "cut \x1b[3": "cut ",
        "e\u0301\b?": "?",
        "wide 🟩\r>": ">ide 🟩",
    }
    shown = page.evaluate(
        """texts => texts.map((text) =>
          linesOf(text).map((line) => line.map(({ sign }) => sign).join("")).join("\\n"))""",
        list(cases),
    )
    assert shown == list(cases.values())


def test_a_terminal_has_its_colours(page: Page) -> None:
    parts = {
        "red": "\x1b[31m",
        "bright": "\x1b[1;92m",
        "cube": "\x1b[38;5;196;4m",
        "grey": "\x1b[38;5;244m",
        "true": "\x1b[38;2;1;2;3m",
        "colons": "\x1b[38:2::4:5:6m",
        "ground": "\x1b[48;5;21m",
        "inverse": "\x1b[7m",
        "under": "\x1b[4m",
        "none": "\x1b[31m\x1b[m",
    }
    show(page, {"stdout": "".join(f"{code}{name}\x1b[0m " for name, code in parts.items())})

    def css(name: str, of: str) -> str:
        found: str = page.locator(".view-screen span", has_text=name).evaluate(
            "(span, of) => getComputedStyle(span)[of]", of
        )
        return found

    assert css("red", "color") == "rgb(239, 107, 115)"
    assert css("bright", "fontWeight") == "700"
    assert css("cube", "color") == "rgb(255, 0, 0)"
    assert "underline" in css("cube", "textDecoration")
    assert css("grey", "color") == "rgb(128, 128, 128)"
    assert css("true", "color") == "rgb(1, 2, 3)"
    assert css("colons", "color") == "rgb(4, 5, 6)"
    assert css("ground", "backgroundColor") == "rgb(0, 0, 255)"
    assert css("inverse", "backgroundColor") == "rgb(228, 231, 236)"
    assert "underline" in css("under", "textDecoration")
    expect(page.locator(".view-screen span", has_text="none")).to_have_count(0)


# ------------------------------------------------------------------ arrays and pictures


def test_arrays_of_pixels_are_drawn_in_every_layout(page: Page) -> None:
    rgb = np.zeros((10, 12, 3), np.uint8)
    rgb[2, 5] = [200, 100, 50]
    rgba = np.dstack([rgb, np.full((10, 12), 255, np.uint8)])
    grey = np.zeros((20, 14), np.uint8)
    grey[3, 4] = 77
    for array, at, expected in [
        (rgb, (5, 2), [200, 100, 50, 255]),
        (rgba, (5, 2), [200, 100, 50, 255]),
        (np.moveaxis(rgb, 2, 0), (5, 2), [200, 100, 50, 255]),
        (grey, (4, 3), [77, 77, 77, 255]),
        (grey[..., None], (4, 3), [77, 77, 77, 255]),
        (grey[None], (4, 3), [77, 77, 77, 255]),
    ]:
        show(page, {"frame": wire(array)})
        assert pixel(page, *at) == expected, array.shape
        assert pixel(page, 0, 0) == [0, 0, 0, 255]
    assert field(page, "frame").locator("canvas").evaluate("one => one.width") == 14
    assert field(page, "frame").locator("canvas").evaluate(
        "one => [one.style.width, one.style.imageRendering, one.getAttribute('role')]"
    ) == [f"{14 * 21}px", "pixelated", "img"]


def test_a_stack_of_frames_is_a_strip_of_the_first_eight(page: Page) -> None:
    stack = np.arange(10, dtype=np.uint8)[:, None, None] * np.ones((1, 84, 84), np.uint8)
    show(page, {"frames": wire(stack)})
    expect(page.locator("canvas")).to_have_count(8)
    assert [pixel(page, 1, 1, index)[0] for index in range(8)] == list(range(8))
    expect(page.locator("figcaption")).to_contain_text(
        f"the first 8 of 10 frames of 84 {TIMES} 84 px"
    )
    show(page, {"frames": wire(stack[:4])})
    expect(page.locator("canvas")).to_have_count(4)


def test_lists_of_pixels_are_drawn_and_flat_ones_with_a_shape_beside_them(page: Page) -> None:
    screen = np.zeros((40, 36, 3), np.uint8)
    screen[7, 9] = [10, 20, 30]
    show(page, {"screen": screen.flatten().tolist(), "screen_shape": [40, 36, 3]})
    assert pixel(page, 9, 7) == [10, 20, 30, 255]
    expect(field(page, "screen_shape")).to_be_visible()
    show(page, {"pixels": screen.tolist()})
    assert pixel(page, 9, 7) == [10, 20, 30, 255]
    show(page, {"pixels": (screen.astype(float) / 30).clip(0, 1).tolist()})
    assert pixel(page, 9, 7)[2] == 255
    show(page, {"screen": list(range(200)), "screen_shape": [3, 3, 3]})  # which it has not
    expect(page.locator("canvas")).to_have_count(0)


def test_numbers_are_a_heat_map_a_line_or_figures(page: Page) -> None:
    rows = np.arange(20 * 30, dtype=">f4").reshape(20, 30)
    show(
        page,
        {
            "heat": wire(rows),
            "line": [float(index) for index in range(1000)],
            "half": wire(np.array([0.5, -2, 65504, np.inf], np.float16)),
            "large": wire(np.array([[[-(2**40)]], [[7]]], np.int64)),
            "words": wire(np.array(["a", "bc"])),
        },
    )
    assert pixel(page, 0, 0) == [68, 1, 84, 255]
    assert pixel(page, 29, 19) == [253, 231, 37, 255]
    expect(field(page, "heat")).to_contain_text("float32, shape (20, 30) · min 0 · mean 299.5")
    expect(field(page, "line").get_by_role("img")).to_have_accessible_name(
        "line: 1,000 numbers, min 0 · mean 499.5 · max 999"
    )
    expect(field(page, "half")).to_contain_text("max 65504 · 1 not finite")
    expect(field(page, "large")).to_contain_text("int64, shape (2, 1, 1) · min -1.1e+12")
    expect(field(page, "words")).to_contain_text("<U2, shape (2)")


def test_arrays_that_are_broken_are_shown_as_they_came(page: Page) -> None:
    for array in (
        {"dtype": "|u1", "shape": [9, 9], "data": "AAAA"},
        {"dtype": "|u1", "shape": [9, -9], "data": "AAAA"},
        {"dtype": "|u1", "shape": [1e9, 1e9], "data": "AAAA"},
        {"dtype": "<f4", "shape": [1], "data": "no base64!"},
        {"dtype": "|u1", "shape": [{}], "data": ""},
    ):
        show(page, {"array": array})
        expect(field(page, "array")).to_contain_text("cannot be shown as what it seems to be")
        expect(field(page, "array")).to_contain_text("dtype")


def test_pictures_come_from_base64_and_broken_ones_say_so(page: Page) -> None:
    png = base64.b64encode(write_png(np.full((20, 30, 3), 40, np.uint8))).decode()
    show(
        page,
        {
            "one": png,
            "two": f"data:image/png;base64,{png}",
            "three": {"media_type": "image/png", "bytes": png},
            "broken": png[:40],
        },
    )
    for name in ("one", "two", "three"):
        picture = field(page, name).get_by_role("img", name=name)
        expect(field(page, name)).to_contain_text(f"30 {TIMES} 20 px, PNG")
        assert picture.evaluate("one => [one.src.slice(0, 5), one.style.width]") == [
            "blob:",
            f"{30 * 13}px",
        ]
    expect(field(page, "broken")).to_contain_text("no valid picture")
    assert page.evaluate("() => violations") == []


def test_svg_is_a_picture_in_which_nothing_runs(page: Page, elsewhere: Bench) -> None:
    svg = (
        f'<svg width="300" height="50" onload="window.harmed=1"><script>window.harmed=1</script>'
        f'<image href="{elsewhere.url}/svg.png"/><rect width="9" height="9"/></svg>'
    )
    connected = elsewhere.connections
    show(page, {"drawing": svg, "bad": "<svg><rect</svg>"}, rendering={"text": svg})
    page.wait_for_function("() => document.querySelector('.view-first img').naturalWidth === 300")
    expect(field(page, "bad")).to_contain_text("no valid picture (SVG)")
    expect(field(page, "bad")).to_contain_text("<rect")
    expect(page.locator("#stage svg rect, #stage script")).to_have_count(0)
    assert elsewhere.connections == connected


def test_a_rendering_comes_first_whatever_it_is(page: Page) -> None:
    first = page.locator(".view > :first-child")
    tiny = np.zeros((2, 3, 3), np.uint8)
    tiny[1, 2] = [1, 2, 3]
    show(page, {"a": 1}, rendering={"array": wire(tiny)}, html="<b>from the environment</b>")
    assert pixel(page, 2, 1) == [1, 2, 3, 255]
    expect(first).to_have_attribute("data-kind", "rendering")
    inside = page.frame_locator("iframe")
    expect(inside.locator("b")).to_have_text("from the environment")
    show(page, {"a": 1}, rendering={"array": tiny.tolist()})
    assert pixel(page, 2, 1) == [1, 2, 3, 255]
    show(page, {"a": 1}, rendering={"text": "\x1b[31mred\x1b[0m"})
    expect(first.locator(".view-screen")).to_have_text("red")
    show(page, {"a": 1}, rendering={"text": "| a |\n|---|"})
    expect(first.locator("pre")).to_have_text("| a |\n|---|")
    png = base64.b64encode(write_png(tiny)).decode()
    show(page, {"a": 1}, rendering={"media_type": "image/png", "bytes": png})
    expect(first).to_contain_text(f"3 {TIMES} 2 px")
    for broken in ({"array": {"dtype": "<f4", "shape": [1], "data": "AAAAAA=="}}, {"text": None}):
        show(page, {"a": 1}, rendering=broken)
        expect(field(page, "a")).to_be_visible()


# ------------------------------------------------------------------ boards, tables, conversations


def test_a_chess_position_is_a_board_with_words(page: Page) -> None:
    fen = "4k3/8/8/8/8/8/4P3/4K3 b - - 0 1"
    show(page, {"fen": fen})
    expect(field(page, "fen").get_by_role("img")).to_have_accessible_name(
        "Chess board, black to move. White: pawn e2, king e1. Black: king e8."
    )
    expect(page.locator(".chess-board td")).to_have_count(64)
    expect(field(page, "fen")).to_contain_text(fen)
    show(page, {"fen": fen}, rendering={"text": "a drawing"})
    expect(page.locator(".chess-board")).to_have_count(0)


def test_a_long_table_shows_more_when_asked(page: Page) -> None:
    rows: list[dict[str, object]] = [{"id": index, "name": f"row {index}"} for index in range(450)]
    rows[1] = {"id": 1, "extra": {"deep": [1]}}
    show(page, {"rows": rows})
    table = page.get_by_role("table", name="rows: 450 rows")
    expect(table.locator("thead th")).to_have_text(["id", "name", "extra"])
    expect(table.locator("tbody tr")).to_have_count(200)
    page.get_by_role("button", name="show more; 250 rows are left").press("Enter")
    expect(table.locator("tbody tr")).to_have_count(400)
    page.get_by_role("button", name="show more; 50 rows are left").press("Enter")
    expect(table.locator("tbody tr")).to_have_count(450)
    expect(page.get_by_role("button", name="show more")).to_have_count(0)
    expect(table.locator("tbody")).to_be_focused()


def test_messages_are_bubbles_with_their_parts(page: Page) -> None:
    png = base64.b64encode(write_png(np.zeros((4, 4, 3), np.uint8))).decode()
    messages = [
        {"role": "system", "content": "Be kind.\nAnd brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}},
                {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/far.png"}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "name": "look"}]},
    ]
    show(page, {"messages": messages})
    bubbles = page.locator(".chat > li")
    expect(bubbles).to_have_count(3)
    expect(bubbles.nth(0)).to_contain_text("Be kind.\nAnd brief.")
    expect(bubbles.nth(1).locator("img")).to_have_count(1)
    expect(bubbles.nth(1)).to_contain_text("http://127.0.0.1:9/far.png")
    expect(bubbles.nth(2)).to_contain_text("look")


# ------------------------------------------------------------------ large, copied, raw, let go


def test_long_texts_are_cut_and_shown_on_request(page: Page) -> None:
    text = "x" * 19_999 + "🟩" + "y " * 20_000  # a character of two halves, where it is cut
    show(page, {"text": text, "stdout": "\x1b[31mx" * 9_000, "json": {"key": text}})
    shown = field(page, "text").locator(".view-text")
    assert shown.evaluate("one => one.firstChild.data") == text[:19_999]
    field(page, "text").get_by_role("button", name="show all 60,001 characters").click()
    assert shown.evaluate("one => one.textContent") == text
    field(page, "stdout").get_by_role("button", name="show all 54,000 characters").click()
    assert field(page, "stdout").locator("pre").evaluate("one => one.textContent") == "x" * 9_000
    assert len(field(page, "json").inner_text()) < 700
    page.evaluate("() => { stage.style.display = 'none' }")  # to lay it out takes seconds
    page.evaluate("() => show({ text: 'x y '.repeat(500_000) })")
    more = field(page, "text").locator("button.view-more")
    expect(more).to_have_text("show more; 1,980,000 characters are left")
    more.dispatch_event("click")
    assert shown.evaluate("one => one.textContent.length") < 520_100


def test_fields_are_copied_and_seen_as_they_came(page: Page) -> None:
    board = [[0, 2], [4, 0]]
    show(page, {"board": board, "score": 7})
    page.get_by_role("button", name="copy board").click()
    expect(field(page, "board").get_by_role("status")).to_have_text("copied")
    assert json.loads(page.evaluate("() => navigator.clipboard.readText()")) == board
    page.get_by_role("button", name="copy score").press("Enter")
    page.wait_for_function("async () => (await navigator.clipboard.readText()) === '7'")
    page.get_by_role("button", name="raw board").click()
    expect(field(page, "board").locator("table")).to_be_hidden()
    expect(field(page, "board").locator(".tree")).to_be_visible()
    page.get_by_role("button", name="raw board").click()
    expect(field(page, "board").locator("table")).to_be_visible()


def test_nothing_is_kept_of_observations_that_are_gone(page: Page) -> None:
    png = base64.b64encode(write_png(np.zeros((4, 4, 3), np.uint8))).decode()
    observation = {
        "shot": png,
        "drawing": '<svg width="9" height="9"></svg>',
        "frame": wire(np.zeros((16, 16, 3), np.uint8)),
        "stdout": "\x1b[31mred",
        "info": {"a": [1, 2, {"b": 3}]},
        "readme": "# Title",
    }
    page.evaluate(
        """() => {
          window.alive = new Set();
          const { createObjectURL, revokeObjectURL } = URL;
          URL.createObjectURL = (blob) => {
            const address = createObjectURL.call(URL, blob);
            alive.add(address);
            return address;
          };
          URL.revokeObjectURL = (address) => {
            alive.delete(address);
            revokeObjectURL.call(URL, address);
          };
        }"""
    )
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def size() -> dict[str, float]:
        session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics}

    def show_many(times: int) -> None:
        page.evaluate(
            """async ([observation, times]) => {
              for (let time = 0; time < times; time++) {
                show(observation, { rendering: { text: observation.drawing } });
                if (time % 20 === 0) await new Promise(requestAnimationFrame);
              }
              await new Promise(requestAnimationFrame);
            }""",
            [observation, times],
        )

    show_many(10)
    assert page.evaluate("() => alive.size") == 3
    before = size()
    show_many(200)
    assert page.evaluate("() => alive.size") == 3
    after = size()
    for name in ("Nodes", "Documents", "JSEventListeners"):
        assert after[name] < before[name] * 1.5 + 50, name
    page.evaluate("() => put(document.createElement('p'))")
    assert page.evaluate("() => alive.size") == 0


# ------------------------------------------------------------------ trees


def test_a_tree_is_made_as_it_is_opened(page: Page) -> None:
    page.evaluate(
        """() => {
          let deep = "the end";
          for (let level = 0; level < 5000; level++) deep = { [`level${level}`]: deep };
          put(tree.renderTree({ many: Array.from({ length: 5000 }, (_, index) => index), deep }));
        }"""
    )
    assert page.locator(".tree li").count() == 3
    many = page.locator("li details").filter(has_text="many:").last
    many.locator("summary").click()
    expect(many.locator("> ul > li")).to_have_count(100)
    many.get_by_role("button", name="show more; 4,900 entries are left").click()
    expect(many.locator("> ul > li")).to_have_count(300)
    for name in ("deep", "level4999", "level4998"):
        page.locator("summary").filter(has_text=re.compile(f"^{name}:")).press("Enter")
    expect(page.locator("summary").filter(has_text=re.compile("^level4997:"))).to_be_visible()
    page.evaluate("() => show({ deep: JSON.parse('['.repeat(4000) + ']'.repeat(4000)) })")
    expect(field(page, "deep")).to_be_visible()


def test_a_tree_marks_what_has_changed(page: Page) -> None:
    value = {"same": 1, "other": 2, "new": True, "list": [1, 5], "kind": [1], "__proto__": 1}
    before = {"same": 1, "other": "two", "list": [1, 2], "kind": {"a": 1}, "gone": [1, 2]}
    page.evaluate(
        """([value, before]) => put(tree.renderTree(JSON.parse(value), {
          previous: JSON.parse(before), open: true }))""",
        [json.dumps(value), json.dumps(before)],
    )
    marked = page.locator(".changed").evaluate_all(
        "all => all.map((one) => [one.firstChild.textContent, one.title])"
    )
    assert [title for _, title in marked] == [
        'was "two"',
        "is new",
        "was 2",
        "was {1}",
        "is new",
        "is gone",
    ]
    row = page.locator(".changed", has_text="other")
    expect(row).to_contain_text("changed: was")
    assert row.locator(".view-unseen").evaluate("one => getComputedStyle(one).width") == "1px"
    expect(page.locator(".holds-changes > details > summary").nth(1)).to_contain_text(
        "changed inside"
    )
    page.evaluate("value => put(tree.renderTree(value))", value)
    expect(page.locator(".changed")).to_have_count(0)


# ------------------------------------------------------------------ plots


def plot(page: Page, rewards: list[float | None]) -> Any:
    page.evaluate(
        """rewards => {
          const made = new plot.RewardPlot();
          put(made.element);
          made.set(rewards.map((reward, index) => ({ step: index + 1, reward })));
        }""",
        rewards,
    )
    return page.locator(".plot")


def test_a_plot_says_in_words_what_it_shows(page: Page) -> None:
    shown = plot(page, [1, 0.1, None, -0.2, 0])
    expect(shown.get_by_role("img")).to_have_accessible_name("5 steps, cumulative 0.9, last 0")
    expect(shown.locator(".plot-bar")).to_have_count(4)
    expect(shown.locator(".plot-negative")).to_have_count(1)
    expect(shown.locator("tbody tr")).to_have_text(["11", "20.1", "3none", "4-0.2", "50"])
    cases: list[tuple[list[float | None], str]] = [
        ([], "no steps yet"),
        ([0.5], "1 step, cumulative 0.5, last 0.5"),
        ([None], "1 step, cumulative 0, last none"),
        ([1e308, 1e308, -1e308], "3 steps, cumulative 1e+300, last -1e+308"),
    ]
    for rewards, words in cases:
        expect(plot(page, rewards).get_by_role("img")).to_have_accessible_name(words)
    assert page.evaluate("() => plot.ticks(-0.3, 1)") == [-0.5, 0, 0.5, 1]


def test_a_plot_is_read_step_by_step(page: Page) -> None:
    shown = plot(page, [1, -2, 3])
    tip = shown.get_by_role("status")
    expect(tip).to_be_hidden()
    shown.locator(".plot-stage").press("ArrowRight")
    expect(tip).to_have_text("step 1: reward 1, cumulative 1")
    shown.locator(".plot-stage").press("End")
    expect(tip).to_have_text("step 3: reward 3, cumulative 2")
    shown.locator(".plot-stage").press("Escape")
    expect(tip).to_be_hidden()
    shown.locator("svg").hover(position={"x": 460, "y": 60})
    expect(tip).to_have_text("step 2: reward -2, cumulative -1")
    box = tip.bounding_box()
    assert box is not None
    assert box["x"] >= 0


def test_a_plot_of_very_many_steps_draws_few_and_loses_no_peak(page: Page) -> None:
    rewards: list[float | None] = [0.0] * 20_000
    rewards[12_345] = 9
    rewards[12_346] = -9
    shown = plot(page, rewards)
    assert shown.locator("rect").count() <= 501
    expect(shown.locator(".plot-positive")).to_have_count(1)
    expect(shown.locator(".plot-negative")).to_have_count(1)
    assert shown.locator("tbody tr").count() == 100
    page.set_viewport_size({"width": 320, "height": 600})
    page.wait_for_function("() => document.querySelectorAll('.plot rect').length < 150")


# ------------------------------------------------------------------ the look


# The elements whose contrast is less than WCAG 2.2 asks of text (1.4.3).
FAINT = """selector => {
  const luminance = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = luminance(getComputedStyle(document.querySelector(".card")).backgroundColor);
  const contrast = (one) => {
    const text = luminance(getComputedStyle(one).color);
    return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
  };
  return [...document.querySelectorAll(selector)]
    .filter((one) => contrast(one) < 4.5).map((one) => one.outerHTML);
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_kinds_fit_a_narrow_page_and_can_be_read(page: Page, theme: str) -> None:
    page.set_viewport_size({"width": 320, "height": 700})
    page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    show(
        page,
        {
            "a_name_that_is_very_long_and_has_no_place_to_break" * 3: "x" * 100,
            "text": "x" * 500,
            "lines": "┌──┐\n│  │" * 40,
            "stdout": "\x1b[33m" + "wide " * 80,
            "fen": "4k3/8/8/8/8/8/4P3/4K3 b - - 0 1",
            "board": [[2048] * 12] * 12,
            "rows": [{f"column_{index}": "w" * 50 for index in range(8)}] * 2,
            "frame": wire(np.zeros((84, 84), np.uint8)),
            "wide": wire(np.zeros((10, 1000, 3), np.uint8)),
            "broken": "iVBORw0KGgo" + "A" * 300,
            "messages": [{"role": "user", "content": "w" * 300}],
            "info": {"k" * 100: "v" * 400},
            "html": '<div style="width: 2000px">wide</div>',
        },
    )
    expect(field(page, "broken")).to_contain_text("no valid picture")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 320
    faint = page.evaluate(FAINT, "h4, dt, dd, .view-note, figcaption, .view-raw, .tree span")
    assert faint == []
