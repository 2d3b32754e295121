"""axe-core (Deque Systems) finds nothing serious, in light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from playwright.sync_api import Page, expect
from support import browsers
from support.amounts import mostly_extended
from support.shown import Talker

from chess_env.server.chess_environment import ChessEnvironment
from openenv import create_app

pytestmark = [pytest.mark.slow, pytest.mark.compat, pytest.mark.blocks_the_loop]

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def axe() -> str:
    return browsers.axe_core()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", mostly_extended([360, 1280]))
def test_nothing_serious_is_found(
    open_page: Open, axe: str, scheme: Literal["light", "dark"], width: int
) -> None:
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    page = open_page(lambda: create_app(ChessEnvironment), **options)
    page.get_by_text("More arguments").click()
    page.get_by_role("button", name="Start an episode").click()
    page.get_by_role("group", name="Moves").get_by_role("button").first.click()
    expect(page.get_by_text("Episode 1, step 1")).to_be_visible()
    assert browsers.serious_findings(page, axe) == []
    page.get_by_role("tab", name="State").click()
    assert browsers.serious_findings(page, axe) == []
    for name in ("Watch", "Docs"):
        page.get_by_role("link", name=name).click()
        expect(page.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
        assert browsers.serious_findings(page, axe) == []
    is_wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(is_wider)


def test_an_episode_is_played_by_the_keyboard_alone(open_page: Open) -> None:
    page = open_page(lambda: create_app(Talker))
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Start an episode":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_text("Episode 1, its beginning")).to_be_visible()
    greet = page.get_by_role("button", name="Greet")
    for _ in range(60):
        if greet.evaluate("one => one === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Episode 1, step 1")).to_be_visible()
    page.keyboard.press("Enter")  # what had the focus has it still
    expect(page.get_by_text("Episode 1, step 2")).to_be_visible()
