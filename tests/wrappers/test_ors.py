"""Environments of an ORS server: the reference one, of the package `openreward`."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES
from support.venvs import python_of
from wrappers.driving import driving

from openenv.types import public_view
from openenv.wrappers import AdapterError, from_ors
from openenv.wrappers.ors import OrsTask

pytestmark = [pytest.mark.packages, pytest.mark.timeout(300)]

PACKAGE = "openreward==0.1.167"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = python_of(SOURCES.parent / ".peers" / "openreward", PACKAGE)
    command = [python, str(Path(__file__).with_name("ors_server.py"))]
    log = tmp_path_factory.mktemp("ors") / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            port = server.stdout.readline()
            assert port, log.read_text()
            yield f"http://127.0.0.1:{int(port)}"
        finally:
            server.terminate()
            server.wait(10)


def call(env: Any, name: str, **arguments: Any) -> Any:
    return env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})


def text_of(result: Any) -> str:
    return str(result.observation["result"]["content"][0]["text"])


def test_an_episode_is_scored_by_the_server(url: str) -> None:
    with driving(f"ors:{url}/sums") as env:
        prompt = env.reset(task="train/3")
        assert text_of(prompt) == "What is 3 + 3?"
        assert prompt.observation["result"]["content"][1]["mimeType"] == "image/gif"
        noted = call(env, "note", text="hi")
        assert (noted.reward, noted.done, text_of(noted)) == (None, False, "hi")
        assert noted.observation["metadata"] == {"ors": {"length": 2}}
        wrong = call(env, "guess", answer="5")
        assert (wrong.reward, wrong.done) == (0.0, False)
        right = call(env, "guess", answer="6")
        assert (right.reward, right.done, right.truncated) == (1.0, True, False)
        with pytest.raises(RuntimeError, match="episode is over"):
            call(env, "guess", answer="6")
        assert env.state()["step_count"] == 3


def test_tools_are_the_servers_with_that_for_the_last_word(url: str) -> None:
    with driving(f"ors:{url}") as env:
        env.reset(seed=0)
        tools = env.step({"type": "list_tools"}).observation["tools"]
        assert {tool["name"] for tool in tools} == {"note", "guess", "submit"}
        last = call(env, "submit", answer="no idea")
        assert (last.reward, last.done) == (-0.5, True)


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("note", {"text": "boom"}, "execution_error"),
        ("note", {"txt": "hi"}, "invalid_args"),
        ("nothing", {}, "tool_not_found"),
    ],
)
def test_a_call_that_fails_is_not_scored(
    url: str, name: str, arguments: dict[str, Any], kind: str
) -> None:
    with driving(f"ors:{url}") as env:
        env.reset(seed=0)
        failed = call(env, name, **arguments)
        assert failed.observation["error"]["error_type"] == kind
        assert (failed.reward, failed.done) == (None, False)
        assert call(env, "guess", answer="x").reward == 0.0


def test_a_task_may_be_given_as_a_spec_and_a_seed_draws_one(url: str) -> None:
    with driving(f"ors:{url}?split=test") as env:
        assert text_of(env.reset(seed=1)) == "What is 20 + 22?"
        assert text_of(env.reset(task={"question": "Why?", "answer": "7"})) == "Why?"
        assert call(env, "guess", answer="7").reward == 1.0
        drawn = [text_of(env.reset(seed=4, split="train")) for _ in range(2)]
        assert drawn[0] == drawn[1]


@pytest.mark.parametrize("task", ["nonsense", "train/99", "nowhere/0"])
def test_a_task_that_is_none_is_refused_and_the_episode_goes_on(url: str, task: str) -> None:
    with driving(f"ors:{url}") as env:
        env.reset(task="train/1")
        with pytest.raises(RuntimeError):
            env.reset(task=task)
        assert call(env, "guess", answer="2").reward == 1.0


def test_sessions_are_apart(url: str) -> None:
    with driving(f"ors:{url}") as one, driving(f"ors:{url}/other") as other:
        one.reset(task="train/1")
        other.reset(task="train/2")
        assert call(one, "guess", answer="2").done
        assert call(other, "guess", answer="4").done


def test_a_call_before_reset_is_an_error_and_not_scored(url: str) -> None:
    with driving(f"ors:{url}") as env:
        failed = call(env, "guess", answer="2")
        assert "before reset" in failed.observation["error"]["message"]
        assert failed.reward is None


def test_tasks_are_listed_and_their_answers_private(url: str) -> None:
    async def look() -> None:
        env = from_ors(f"{url}/sums")()
        try:
            assert [one["name"] for one in await env.list_splits()] == ["train", "test"]
            assert await env.num_tasks("train") == 5
            (only,) = await env.list_tasks("test")
            assert only.spec["answer"] == "42"
            assert "42" not in str(public_view(only)["id"])
            assert "spec" not in public_view(only)
            assert (await env.get_task("train", -1)).id == "train/4"
            assert [one.index for one in await env.get_task_range("train", 1, 3)] == [1, 2]
            with pytest.raises(IndexError):
                await env.get_task("train", 5)
            assert isinstance(only, OrsTask)
        finally:
            await env.close_async()

    asyncio.run(look())


def test_names_that_are_none_are_told_the_nearest(url: str) -> None:
    with pytest.raises(AdapterError, match="'sums'"):
        from_ors(f"{url}/sms")
    with pytest.raises(AdapterError, match="no ORS server answers"):
        from_ors("http://127.0.0.1:1")
    with pytest.raises(AdapterError, match="no URL"):
        from_ors("sums")
