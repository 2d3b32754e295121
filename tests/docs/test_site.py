"""The documentation as a site: it is built without a warning, no link of it is broken, and it
asks nobody else for anything.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from support import browsers

ROOT = Path(__file__).resolve().parents[2]
HOST = "https://site.invalid"
BUILD_TIMEOUT_S = 110
TRY_LATER = 75

pytestmark = [
    pytest.mark.extended("builds the site; test_docs.py checks the links of its sources"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.blocks_the_loop,
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` builds it."""
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(built)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return built


# ------------------------------------------------------------------ links


class Reader(HTMLParser):
    """What a page links to and loads, and what can be linked to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Reader]:
    """What is on each page, by its address."""
    return {_address(site, page): Reader(page) for page in sorted(site.rglob("*.html"))}


def _address(site: Path, page: Path) -> str:
    return f"{HOST}/{page.relative_to(site).as_posix().removesuffix('index.html')}"


def broken(site: Path, pages: dict[str, Reader]) -> Iterator[str]:
    """Links that lead nowhere; of those to other sites none is asked for."""
    for address, page in pages.items():
        if address.endswith("/404.html"):  # it has the addresses of a site at the root
            continue
        for link in page.links + page.loaded:
            target, _, anchor = urljoin(address, link).partition("#")
            if not target.startswith(HOST):
                continue
            file = site / unquote(urlsplit(target).path).lstrip("/")
            there = pages.get(target)
            if not (file.is_file() or there):
                yield f"{address}: {link} is not there"
            elif there and unquote(anchor) not in there.anchors:
                yield f"{address}: {link} has no such section"


@pytest.mark.extended("builds the site")
def test_the_first_use_of_a_term_leads_to_the_glossary(pages: dict[str, Reader]) -> None:
    entries = {
        anchor for anchor in pages[f"{HOST}/reference/glossary/"].anchors if "term-" in anchor
    }
    assert len(entries) > 60
    linking = 0
    for page in pages.values():
        led_to = [link.partition("#term-")[2] for link in page.links if "#term-" in link]
        assert len(led_to) == len(set(led_to)), "once on a page"
        linking += bool(led_to)
    assert linking > 0.8 * len(pages)
    assert any("#term-provider" in link for link in pages[f"{HOST}/guides/pools/"].links)


@pytest.mark.extended("test_docs.py checks the links of the sources")
def test_no_link_is_broken(site: Path, pages: dict[str, Reader]) -> None:
    assert len(pages) > 100
    assert list(broken(site, pages)) == []


@pytest.mark.extended("builds the site")
def test_a_broken_link_is_found(site: Path, pages: dict[str, Reader], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<a href="gone/">a</a> <a href="../#no-such">b</a> <img src="no.png">')
    found = list(broken(site, {**pages, f"{HOST}/page/": Reader(page)}))
    assert [line.split()[1] for line in found] == ["gone/", "../#no-such", "no.png"]


def test_a_page_loads_nothing_of_other_sites(pages: dict[str, Reader]) -> None:
    loaded = {urljoin(address, src) for address, page in pages.items() for src in page.loaded}
    assert [src for src in loaded if not src.startswith((HOST, "data:"))] == []


def test_every_page_of_the_repository_is_there(site: Path) -> None:
    for name in ("readme", "changelog", "contributing", "envs/echo_env", "rfcs", "benchmarks"):
        found = [path for path in site.rglob("index.html") if _path(site, path).lower() == name]
        assert found, name


def test_the_sides_of_a_page_name_every_page(pages: dict[str, Reader]) -> None:
    named = {urljoin(f"{HOST}/", link).partition("#")[0] for link in pages[f"{HOST}/"].links}
    known = {address for address in pages if not address.endswith("/404.html")}
    assert known - named - {f"{HOST}/"} == set()


def _path(site: Path, page: Path) -> str:
    return page.parent.relative_to(site).as_posix()


# ------------------------------------------------------------------ in a browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def axe() -> str:
    return browsers.axe_core()


Scheme = Literal["light", "dark"]


@pytest.fixture
def open_page(chromium: Browser, served: str) -> Iterator[Any]:
    """Opens pages; nothing that they log, or ask of other servers, goes unnoticed."""
    wrong: list[str] = []
    contexts = []

    def opened(path: str, scheme: Scheme, width: int) -> Page:
        context = chromium.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((served, "data:", "blob:"))
                else wrong.append(asked.url)
            ),
        )
        page.goto(served + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.extended("a browser audits every kind of page")
@pytest.mark.compat
@pytest.mark.parametrize(
    ("path", "scheme", "width"),
    [
        ("/", "light", 1280),
        ("/concepts/architecture/", "dark", 1280),
        ("/guides/providers/", "light", 360),
        ("/rfcs/002-wire-and-sessions/", "dark", 360),
    ],
)
def test_axe_finds_nothing_serious(
    open_page: Any, axe: str, path: str, scheme: Scheme, width: int
) -> None:
    page = open_page(path, scheme, width)
    assert browsers.serious_findings(page, axe) == []


@pytest.mark.parametrize("path", ["/", "/concepts/architecture/", "/guides/migrating/"])
def test_a_narrow_screen_need_not_be_scrolled_sideways(open_page: Any, path: str) -> None:
    page = open_page(path, "light", 360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_pages_are_found_by_what_they_say(open_page: Any) -> None:
    page = open_page("/", "light", 1280)
    page.get_by_label("Search").first.click()
    page.get_by_role("textbox", name="Search").fill("landlock")
    expect(page.get_by_role("link", name="Sandboxes").first).to_be_visible()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("timeout waiting for container", "faq/#timeout-waiting-for-container"),
        ("max concurrent environments", "faq/#max-concurrent-environments"),
        ("vllm server mode", "faq/#does-trl-work-with-vllm-in-server-mode"),
        ("custom reward", "guides/rubrics/"),
        ("connection closed 1011", "faq/#connection-closed-with-code-1011"),
        ("install from source", "guides/installing/#install-from-source"),
        ("grpo example", "examples/grpo_blackjack/"),
        ("docker without docker", "faq/#can-i-run-it-without-docker"),
        ("session lost", "faq/#session-lost-what-does-sessionlost-mean"),
        ("hugging face space port", "faq/#which-port-does-a-hugging-face-space-use"),
    ],
)
def test_first_search_result_answers(open_page: Any, typed: str, answer: str) -> None:
    page = open_page(f"/?q={quote(typed)}", "light", 1280)
    links = page.locator(".md-search-result__item").first.locator("a.md-search-result__link")
    expect(links.first).to_be_visible()
    shown = [re.sub(r"\?[^#]*", "", link.get_attribute("href")) for link in links.all()[:2]]
    assert any(answer in address for address in shown), shown


def test_code_can_be_copied(open_page: Any) -> None:
    page = open_page("/guides/async-and-sync/", "light", 1280)
    expect(page.locator("button[data-md-type=copy]").first).to_be_attached()
