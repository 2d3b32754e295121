"""The page in a real Chromium: a person plays, looks back, forks, keeps and plays again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.shown import Talker
from support.waiting import wait_until

from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from chess_env.server.chess_environment import ChessEnvironment
from openenv import Action, Environment, Observation, State, create_app
from openenv.rollouts.replays import read
from openenv.server.loading import load_target

pytestmark = [pytest.mark.slow, pytest.mark.blocks_the_loop]

Open = Callable[..., Page]


def begin(page: Page, **arguments: str) -> None:
    for label, value in arguments.items():
        page.get_by_label(label, exact=True).first.fill(value)
    page.get_by_role("button", name="Start an episode").click()
    expect(stage(page)).to_contain_text("Episode 1, its beginning")


def stage(page: Page) -> Any:
    return page.get_by_role("region", name="Environment", exact=True)


def history(page: Page) -> Any:
    return page.get_by_role("region", name="History")


def moves(page: Page) -> Any:
    return page.get_by_role("region", name="Moves").get_by_role("button")


def test_an_episode_is_played_by_moves_and_its_end_is_told(open_page: Open) -> None:
    page = open_page(lambda: create_app(BlackjackEnvironment))
    begin(page, Seed="7")
    expect(moves(page)).to_have_text(["hit1", "stand2"])
    moves(page).nth(1).click()
    expect(stage(page)).to_contain_text("Episode 1, step 1")
    expect(stage(page)).to_contain_text("over")
    expect(page.get_by_role("region", name="Moves")).to_be_hidden()
    expect(page.get_by_role("button", name="Step", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(stage(page)).to_contain_text("Episode 2, its beginning")
    expect(page.get_by_role("button", name="Step", exact=True)).to_be_enabled()


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_keys_play_too_but_not_while_one_is_typing(
    open_page: Open, application: Callable[[str], Any]
) -> None:
    page = open_page(lambda: application("game_2048_env"))
    begin(page, Seed="3")
    page.get_by_role("searchbox").focus()
    page.keyboard.press("ArrowLeft")
    page.get_by_role("heading", name="History").click()
    page.keyboard.press("ArrowLeft")
    expect(history(page).get_by_role("row")).to_have_count(3)
    expect(history(page)).to_contain_text('{"move":"left"}')


@pytest.mark.extended("of the web page; test_page.py plays an episode")
@pytest.mark.parametrize("room", [1, 8])
def test_one_looks_back_and_forks_where_the_environment_can(open_page: Open, room: int) -> None:
    app = create_app(ChessEnvironment, max_concurrent_envs=room)
    page = open_page(lambda: app)
    page.get_by_text("More arguments").click()
    page.get_by_label("white", exact=True).check()
    begin(page)
    for move in ("e2e4", "g1f3"):
        page.get_by_role("button", name=move, exact=True).click()
        expect(history(page)).to_contain_text(move)
    expect(stage(page)).to_contain_text("Episode 1, step 2")
    history(page).get_by_role("button", name="Look at 1.1").click()
    expect(stage(page)).to_contain_text("Episode 1, step 1 (looking back)")
    history(page).get_by_role("button", name="The next step").click()
    expect(stage(page)).not_to_contain_text("looking back")
    look = page.get_by_role("button", name="Look at 1.1", exact=True)
    row = history(page).get_by_role("row").filter(has=look)
    row.get_by_role("button", name="Fork").click()
    expect(history(page)).to_contain_text("forked from step 1 of episode 1")
    expect(history(page).get_by_role("button", name="Look at")).to_have_text(
        ["1.1 restore", "1.1", "1.0 reset"]
    )
    expect(stage(page)).to_contain_text("Episode 1, step 1")
    page.get_by_role("button", name="d2d4", exact=True).click()
    expect(stage(page)).to_contain_text("Episode 1, step 2")
    (manager,) = app.state.openenv_managers
    wait_until(lambda: manager.active_sessions == 1)


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_what_changed_in_the_state_is_marked(open_page: Open) -> None:
    page = open_page(lambda: create_app(Talker))
    begin(page)
    page.get_by_role("button", name="Greet").click()
    expect(stage(page)).to_contain_text("step 1")
    page.get_by_role("tab", name="State").click()
    expect(stage(page).locator(".changed")).to_contain_text("step_count")
    page.get_by_role("tab", name="Frames").click()
    expect(stage(page)).to_contain_text('"word": "hello"')


def test_what_the_server_refuses_is_said_at_the_field(open_page: Open) -> None:
    class Pick(Action):
        number: int

        def model_post_init(self, context: Any) -> None:
            if self.number % 2:
                raise ValueError("only even numbers")

    class Even(Environment[Pick, Observation, State]):
        def reset(self) -> Observation:  # type: ignore[override]
            return Observation()

        def step(self, action: Pick) -> Observation:  # type: ignore[override]
            return Observation(reward=1.0)

        @property
        def state(self) -> State:
            return State()

    page = open_page(lambda: create_app(Even, Pick, Observation))
    begin(page)
    number = page.get_by_label("Number")
    for value, words in (("", ""), ("3", "only even numbers")):
        number.fill(value)
        page.get_by_role("button", name="Step", exact=True).click()
        expect(page.get_by_role("alert").filter(has_text=words).first).to_be_visible()
    expect(history(page)).to_contain_text("only even numbers")
    number.fill("4")
    number.press("Enter")
    expect(stage(page)).to_contain_text("Episode 1, step 1")


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_html_and_moves_of_the_environment_and_messages(open_page: Open) -> None:
    page = open_page(lambda: create_app(Talker))
    begin(page)
    frame = stage(page).frame_locator("iframe").first
    expect(frame.locator("b")).to_have_text("0 None False")
    page.get_by_role("textbox", name="Message").fill("good day")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(frame.locator("b")).to_have_text("1 0.5 False")
    expect(stage(page)).to_contain_text("GOOD DAY")
    page.get_by_role("button", name="Leave").click()
    expect(stage(page)).to_contain_text("over")


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_what_cannot_be_shown_is_said_and_the_step_counts(open_page: Open) -> None:
    page = open_page(lambda: create_app(Talker))
    begin(page)
    page.get_by_role("textbox", name="Word", exact=True).fill("raises")
    page.get_by_role("button", name="Step", exact=True).click()
    expect(stage(page)).to_contain_text("Episode 1, step 1")
    expect(stage(page)).to_contain_text("view: OSError in view")


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_tools_have_forms_of_their_own(open_page: Open) -> None:
    page = open_page(lambda: load_target("compat.tools_environment:app"))
    begin(page)
    page.get_by_label("Tool", exact=True).select_option(label="greet")
    page.get_by_label("Name").fill("Ada")
    page.get_by_role("button", name="Call the tool").click()
    expect(stage(page)).to_contain_text("Hello, Ada!")


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_a_recording_is_kept_read_compared_and_played_again(
    open_page: Open, tmp_path: Path
) -> None:
    page = open_page(lambda: create_app(BlackjackEnvironment))
    begin(page, Seed="7")
    moves(page).nth(1).click()
    expect(stage(page)).to_contain_text("step 1")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    path = tmp_path / "kept.jsonl"
    download.value.save_as(path)
    (episode,) = read(path)
    assert (episode.seed, [event.kind for event in episode.events]) == (7, ["reset", "step"])
    assert episode.events[1].action == {"action": "stand"}

    page.get_by_label("A recording").set_input_files(path)
    expect(history(page)).to_contain_text("recording kept.jsonl: 2 of 2 requests")
    page.get_by_role("button", name="The next step").click()
    expect(page.get_by_role("region", name="This session, 1.1")).to_be_visible()
    page.get_by_role("button", name="Play it again here").click()
    expect(page.get_by_role("status").filter(has_text="came out the same")).to_be_visible()

    lines = path.read_text().splitlines()
    event = json.loads(lines[2])
    event["reward"] = 17.0
    path.write_text("\n".join([*lines[:2], json.dumps(event), *lines[3:]]))
    page.get_by_label("A recording").set_input_files(path)
    page.get_by_role("button", name="Play it again here").click()
    expect(page.get_by_role("alert")).to_contain_text("came out otherwise than in the recording")
    path.write_text("{")
    page.get_by_label("A recording").set_input_files(path)
    expect(history(page)).to_contain_text("kept.jsonl cannot be read: line 1")
