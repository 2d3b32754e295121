"""A browser, and pages of servers that serve theirs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request
from support import browsers
from support.servers import serving

from openenv.server.loading import load_target


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Loads the application of an environment package, with its page: another test in this process
    may have imported it without.
    """

    def load(package: str) -> Any:
        monkeypatch.delitem(sys.modules, f"{package}.server.app", raising=False)
        return load_target(package)

    return load


@pytest.fixture
def open_page(chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Page]]:
    """Opens the page of an application, which is made when it is asked for. Nothing that it logs
    or asks for elsewhere goes unnoticed.
    """
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    wrong: list[str] = []
    with ExitStack() as stack:

        def opened(make: Callable[[], Any], path: str = "/web/", **options: Any) -> Page:
            url = stack.enter_context(serving(make()))
            context = chromium.new_context(**options)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(10_000)
            listen(page, url, wrong)
            page.goto(url + path)
            return page

        yield opened
    assert wrong == []


def listen(page: Page, url: str, wrong: list[str]) -> None:
    """Note what goes wrong in a page, and what it asks for that is not its server's."""
    own = (url, f"ws{url[4:]}", "blob:", "data:", "about:")

    def heard(said: ConsoleMessage) -> None:
        if said.type == "error":
            wrong.append(said.text)

    def asked(request: Request) -> None:
        if not request.url.startswith(own):
            wrong.append(f"asked for {request.url}")

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", heard)
    page.on("request", asked)
