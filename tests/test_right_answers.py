"""The right answers that other tests put behind thoughts are right, in every environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.right_answers import ENVIRONMENTS, RIGHT_ANSWERS, RightAnswer, python_with

from openenv import GenericEnvClient
from openenv.reward import RewardSpec
from openenv.rollouts.episode_sessions import EpisodeSessions
from openenv.rollouts.interfaces import Interface, ask_application
from openenv.server import create_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

INSTALLED = [pytest.param(one, id=one.name) for one in RIGHT_ANSWERS if one.is_installed]
LIBRARIES = sorted({one.library for one in RIGHT_ANSWERS if one.library and not one.is_installed})


def test_every_environment_has_one() -> None:
    there = {path.parent.name for path in ENVIRONMENTS.glob("*/openenv.yaml")}
    assert {one.environment for one in RIGHT_ANSWERS} == there
    assert len({one.name for one in RIGHT_ANSWERS}) == len(RIGHT_ANSWERS)


def action_of(reply: str, interface: Interface) -> dict[str, Any]:
    """What a reply means, read as it stands."""
    try:
        call = json.loads(reply)
    except ValueError:
        call = None
    if isinstance(call, dict):
        tool = interface.tool(call["name"])
        assert tool is not None, f"no tool {call['name']}: {[one.name for one in interface.tools]}"
        return tool.action(call["arguments"])
    assert interface.text_field is not None, "a text is no action here"
    return interface.tools[0].action({interface.text_field: reply})


def fenced(reply: str) -> str:
    return f"Here it is:\n```python\n{reply}\n```"


def thought(reply: str) -> str:
    return f'<think>\nPerhaps {{"name": "stop"}}, or 7?\n```\n0\n```\n</think>\n\n{reply}'


FORMS: dict[str, Callable[[str], str]] = {
    "behind a thought": thought,
    "behind a thought that the prompt opened": lambda reply: thought(reply).removeprefix("<think>"),
    "in a fence": fenced,
    "in a fence behind a thought": lambda reply: thought(fenced(reply)),
}


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", INSTALLED)
async def test_it_is_worth_the_same_in_whichever_form_a_model_gives_it(
    case: RightAnswer, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "fence" in form and not case.is_code:
        pytest.skip("no code is asked for")
    for name, value in case.variables.items():
        monkeypatch.setenv(name, value)
    await check_form(case, form)


async def check_form(case: RightAnswer, form: str) -> None:
    """Play it as a model that is trained would, which gives its replies in a form."""
    seats = await EpisodeSessions.of(create_app(case.environment_class()))
    try:
        seat = await seats.take()
        await seat.reset(**case.reset)
        for reply in case.replies:
            answer = await seat.reply(FORMS[form](reply))
            assert not answer.is_refused, answer.text
        assert seat.score("earned").value == pytest.approx(case.reward, abs=1e-9)
    finally:
        await seats.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("case", INSTALLED)
async def test_it_is_worth_what_it_is_said_to_be(
    case: RightAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in case.variables.items():
        monkeypatch.setenv(name, value)
    await check(case)


async def check(case: RightAnswer) -> None:
    """Play it, and hold it against what is said of it."""
    app = create_app(case.environment_class())
    interface = await ask_application(app)
    async with GenericEnvClient.local(app) as env:
        result = await env.reset(**case.reset)
        rewards, unscored = [], []
        for reply in case.replies:
            assert not result.done, f"it is over before {reply!r}"
            result = await env.step(action_of(reply, interface))
            rewards.append(result.reward)
            unscored.append(result.unscored)
        spec = env.reward_spec
    assert spec is not None
    assert spec.total(rewards, unscored) == pytest.approx(case.reward, abs=1e-9)
    assert result.done == (case.name != "a program")
    assert _is_within(rewards, spec)


def _is_within(rewards: list[float | None], spec: RewardSpec) -> bool:
    if spec.range is None:
        return False
    low, high = spec.range
    return all(one is None or low <= one <= high for one in rewards)


APART = """
import asyncio
from test_right_answers import FORMS, RIGHT_ANSWERS, check, check_form
for case in RIGHT_ANSWERS:
    if case.library == {library!r}:
        asyncio.run(check(case))
        for form in FORMS:
            if case.is_code or "fence" not in form:
                asyncio.run(check_form(case, form))
        print("right:", case.name)
"""


@pytest.mark.packages
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("library", LIBRARIES)
def test_those_that_need_a_library_are_right(library: str) -> None:
    ran = subprocess.run(
        [python_with(library), "-W", "ignore", "-c", APART.format(library=library)],
        cwd=ENVIRONMENTS.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    names = [one.name for one in RIGHT_ANSWERS if one.library == library]
    assert [line for line in ran.stdout.splitlines() if line.startswith("right: ")] == [
        f"right: {name}" for name in names
    ]
