"""Our own environments on the page: each is begun, acted in and seen, as a person would."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from openenv import create_app
from openenv.tools import wrap

pytestmark = [
    pytest.mark.extended("of the web page; test_page.py plays an environment"),
    pytest.mark.slow,
    pytest.mark.blocks_the_loop,
    pytest.mark.timeout(120),
]

Open = Callable[..., Page]
Begun = Callable[[str], Page]
BARE = Path(__file__).parents[1] / "support" / "bare_server.py"


def stage(page: Page) -> Any:
    return page.get_by_role("region", name="Environment", exact=True)


@pytest.fixture
def begun(open_page: Open, application: Callable[[str], Any]) -> Begun:
    return lambda package: begin(open_page(lambda: application(package)))


def begin(page: Page) -> Page:
    page.get_by_role("button", name="Start an episode").click()
    expect(stage(page)).to_contain_text("Episode 1, its beginning", timeout=30_000)
    return page


def step(page: Page) -> None:
    page.get_by_role("button", name="Step", exact=True).click()
    expect(stage(page)).to_contain_text("Episode 1, step 1", timeout=30_000)


def test_echo_says_what_it_was_told(begun: Begun) -> None:
    page = begun("echo_env")
    page.get_by_label("Message").first.fill("hello <b>there</b>")
    step(page)
    expect(stage(page)).to_contain_text("hello <b>there</b>")  # as text
    page.get_by_label("Tool", exact=True).select_option(label="echo_with_length")
    tools = page.get_by_role("region", name="Tools")
    tools.get_by_label("Message").fill("four")
    tools.get_by_role("button", name="Call the tool").click()
    expect(stage(page)).to_contain_text("Episode 1, step 2")


def test_chess_is_a_board_with_moves(begun: Begun) -> None:
    page = begun("chess_env")
    moves = page.get_by_role("group", name="Moves").get_by_role("button")
    assert moves.count() == 20
    moves.first.click()
    expect(stage(page)).to_contain_text("Episode 1, step 1")
    board = stage(page).locator("img").first
    expect(board).to_be_visible()
    assert board.evaluate("one => one.naturalWidth") > 100


def test_atari_is_a_picture(begun: Begun) -> None:
    page = begun("atari_env")
    page.get_by_role("group", name="Moves").get_by_role("button").nth(1).click()
    expect(stage(page)).to_contain_text("Episode 1, step 1")
    drawn = stage(page).locator("canvas, img").first
    expect(drawn).to_be_visible()
    assert drawn.bounding_box()["height"] > 100


def test_coding_runs_code_of_many_lines(begun: Begun) -> None:
    page = begun("coding_env")
    page.get_by_label("Code").first.fill("for i in range(3):\n    print('line', i)")
    step(page)
    expect(stage(page)).to_contain_text("line 2")


def test_finrl_takes_a_list_of_numbers(begun: Begun) -> None:
    page = begun("finrl_env")
    page.get_by_text("As JSON", exact=True).click()
    area = page.get_by_label("The action as JSON")
    assert area.input_value().startswith("{")
    area.fill('{"actions": ["many"]}')
    page.get_by_role("button", name="Send as it is").click()
    expect(page.get_by_role("alert").first).to_contain_text("actions.0: Input should be")
    tickers = json.loads(frames(page))["answer"]["metadata"]["tickers"]
    area.fill(json.dumps({"actions": [0.1] * len(tickers)}))
    page.get_by_role("button", name="Send as it is").click()
    expect(stage(page)).to_contain_text("Episode 1, step 1")


def frames(page: Page) -> str:
    page.get_by_role("tab", name="Frames").click()
    text = stage(page).locator("pre").inner_text()
    page.get_by_role("tab", name="View").click()
    return str(text)


def test_a_browser_shows_its_screen(begun: Begun) -> None:
    page = begun("browser_env")
    kind = page.get_by_role("region", name="Action").get_by_role("combobox").first
    kind.select_option(label="wait")
    step(page)
    screen = stage(page).locator("img, canvas").first
    expect(screen).to_be_visible()


def test_a_wrapped_mcp_server_has_a_form_for_each_tool(open_page: Open) -> None:
    wrapped = wrap(f"{sys.executable} {BARE}")
    page = open_page(lambda: create_app(wrapped))
    page.get_by_role("button", name="Start an episode").click()
    expect(stage(page)).to_contain_text("Episode 1, its beginning", timeout=30_000)
    page.get_by_label("Tool", exact=True).select_option(label="add")
    page.get_by_label("N", exact=True).fill("5")
    page.get_by_role("button", name="Call the tool").click()
    expect(stage(page)).to_contain_text("Episode 1, step 1")
    expect(stage(page)).to_contain_text("5")
