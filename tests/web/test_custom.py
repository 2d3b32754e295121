"""A page that was built with Gradio is a tab. Gradio is the real one, in a venv of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from support.commands import SOURCES, environ
from support.shown import Heard, Say, Talker
from support.venvs import python_of
from web.conftest import listen

from openenv import create_app
from openenv._internal.packages import MissingPackage
from openenv.web.fields import extract_action_fields, is_chat_env

ROOT = SOURCES.parent
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = python_of(ROOT / ".peers" / "gradio", "gradio==6.*", "-e", str(ROOT))
    command = [python, "-m", "openenv.cli", "serve", "web.gradio_app:app", "--port", "0", "--json"]
    log = tmp_path_factory.mktemp("gradio") / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, env=environ(TESTS), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield json.loads(line)["url"]
        finally:
            process.terminate()


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.blocks_the_loop
@pytest.mark.timeout(600)
def test_a_page_of_gradio_is_a_tab_that_plays(chromium: Browser, url: str) -> None:
    wrong: list[str] = []
    page = chromium.new_page()
    listen(page, url, wrong)
    page.goto(url)
    expect(page.get_by_role("heading", name="A talk")).to_be_visible()
    expect(page.get_by_role("link", name="Talk")).to_have_attribute("aria-current", "page")
    frame = page.frame_locator("iframe[title=Talk]")
    expect(frame.get_by_text("A talk of talker: word, False")).to_be_visible(timeout=30_000)
    frame.get_by_role("button", name="Begin").click()
    expect(frame.get_by_label("Heard")).to_have_value("['begun']")
    frame.get_by_label("Word").fill("hello")
    frame.get_by_role("button", name="Say").click()
    expect(frame.get_by_label("Heard")).to_have_value("['begun', 'hello'] 2")
    page.get_by_role("link", name="Play").click()
    page.get_by_role("button", name="Start an episode").click()
    expect(page.get_by_role("region", name="Environment", exact=True)).to_contain_text("Episode 1")
    page.close()
    assert [one for one in wrong if one.startswith("asked for")] == []


@pytest.mark.skipif("gradio" in sys.modules, reason="Gradio is installed beside")
def test_without_gradio_it_is_said_what_installs_it() -> None:
    with pytest.raises(MissingPackage, match=r"pip install 'openenv\[web\]'"):
        create_app(Talker, Say, Heard, gradio_builder=lambda *given: None)


def test_fields_are_told_in_the_words_of_old() -> None:
    (field,) = extract_action_fields(Say)
    assert (field["name"], field["type"], field["required"]) == ("word", "text", True)
    assert not is_chat_env(Say)
