"""The suite for integrations of trainers, played by each trainer itself.

What a trainer cannot do is declared with its reason. Where the trainer plays by itself, its models
are scripts: a client of a vLLM server for TRL, a server of the OpenAI API for ART, verifiers and
NeMo Gym.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES
from support.llm_server import Asked, Reply, llm_server
from trainers.conformance_play import reply_to, side_by_side

# Fixtures and functions: each gives the Python that has its trainer.
from trainers.test_art import python as python_of_art  # noqa: F401
from trainers.test_lightning import python as python_of_lightning
from trainers.test_nemo_gym import python as python_of_nemo_gym  # noqa: F401
from trainers.test_oumi import python as python_of_oumi  # noqa: F401
from trainers.test_skyrl import python as python_of_skyrl  # noqa: F401
from trainers.test_torchforge import Completion, Letters
from trainers.test_trl import LOWEST, LOWEST_WITH_FACTORY, NEWEST
from trainers.test_trl import python as python_of_trl
from trainers.test_verifiers import python as python_of_verifiers  # noqa: F401
from trainers.test_verl import python as python_of_verl  # noqa: F401

from openenv.integrations.torchforge import rollout
from openenv.testing import IntegrationFailed, check_integration
from openenv.testing.trainers import (
    CASES,
    TrainerCase,
    TrainerResult,
    TrainerRollout,
    TrainerRun,
    find_case,
)

pytestmark = [pytest.mark.trainers, pytest.mark.slow("imports trainers"), pytest.mark.timeout(900)]

ROOT = SOURCES.parent
IMPORTED = [SOURCES, ROOT / "tests", ROOT / "tests" / "trainers"]
PROGRAM = Path(__file__).parent / "conformance_play.py"

BY_CALLS = "its own loop acts by calls of tools alone"


@contextmanager
def player(python: str, way: str, *arguments: str) -> Iterator[Any]:
    """A function that plays runs in a process that has the trainer."""
    process = subprocess.Popen(
        [python, str(PROGRAM), way, *arguments],
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(map(str, IMPORTED)),
            "OMP_NUM_THREADS": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # which ART's would be downloaded
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def play(run: TrainerRun) -> TrainerResult:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(run.as_data()) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, "the program has ended"
        return TrainerResult.from_data(json.loads(line))

    try:
        yield play
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def checked(play: Any, name: str, *known: str, **not_applicable: str) -> None:
    """Check that every case is kept, but for those that do not apply, and faults that are known."""
    try:
        report = check_integration(play, name=name, not_applicable=not_applicable)
    except IntegrationFailed as failed:
        report = failed.report
    broken = {one.case for one in report.broken}
    assert broken == set(known), "\n" + str(report)
    kept = {one.case for one in report.findings if one.is_kept}
    assert kept == {case.name for case in CASES} - broken - not_applicable.keys()


def checked_by(python: str, way: str, *known: str, **not_applicable: str) -> None:
    with player(python, way) as play:
        checked(play, way, *known, **not_applicable)


def answer(asked: Asked) -> Reply:
    """What the model says that a server of the OpenAI API stands for."""
    text = "\n".join(str(one.get("content")) for one in asked.messages)
    turn = sum(one["role"] == "assistant" for one in asked.messages)
    reply = find_case(text).reply(turn)
    if not asked.body.get("tools"):
        return Reply(reply.text(), cut_off=reply.is_cut)
    calls = [("write", one) for one in reply.arguments]
    return Reply(reply.text(with_calls=False), calls, cut_off=reply.is_cut)


@pytest.fixture
def model() -> Iterator[str]:
    with llm_server(answer) as server:
        yield server.url


# ------------------------------------------------------------------ each trainer


@pytest.mark.parametrize("version", [LOWEST, NEWEST])
def test_trl_by_rollout_func(version: str) -> None:
    checked_by(python_of_trl(version), "rollout_func")


@pytest.mark.parametrize("version", [LOWEST_WITH_FACTORY, NEWEST])
def test_trl_by_environment_factory(version: str) -> None:
    checked_by(
        python_of_trl(version),
        "environment_factory",
        in_a_fence=BY_CALLS,
        cut_off="TRL's own loop carries out the calls, and does not tell how a reply ended",
    )


def test_oumi(request: pytest.FixtureRequest) -> None:
    checked_by(request.getfixturevalue("python_of_oumi"), "oumi")


def test_lightning() -> None:
    checked_by(python_of_lightning(), "lightning")


def test_skyrl(request: pytest.FixtureRequest) -> None:
    checked_by(
        request.getfixturevalue("python_of_skyrl"),
        "skyrl",
        cut_off="SkyRL hands over the words of a reply, and does not tell how it ended",
    )


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="verl 0.9 needs Python 3.12 or older")
def test_verl(request: pytest.FixtureRequest) -> None:
    checked_by(
        request.getfixturevalue("python_of_verl"),
        "verl",
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="ART 0.5 needs Python 3.11")
@pytest.mark.parametrize("way", ["art", "art by words"])
def test_art(way: str, model: str, request: pytest.FixtureRequest) -> None:
    with player(request.getfixturevalue("python_of_art"), way, model) as play:
        checked(play, way)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="verifiers 0.4 needs Python 3.11")
@pytest.mark.parametrize("way", ["verifiers", "verifiers by words"])
def test_verifiers(way: str, model: str, request: pytest.FixtureRequest) -> None:
    not_applicable = {}
    if way == "verifiers":
        not_applicable = {
            "in_a_fence": BY_CALLS,
            "cut_off": "verifiers' harness carries out the calls itself",
        }
    with player(request.getfixturevalue("python_of_verifiers"), way, model) as play:
        checked(play, way, **not_applicable)


def test_nemo_gym(model: str, request: pytest.FixtureRequest) -> None:
    """Its client is of one event loop, so that each run is a process."""
    python = request.getfixturevalue("python_of_nemo_gym")

    def in_a_process(run: TrainerRun) -> TrainerResult:
        with player(python, "nemo gym", model) as play:
            played: TrainerResult = play(run)
            return played

    checked(in_a_process, "nemo gym", in_a_fence=BY_CALLS)


# ------------------------------------------------------------------ torchforge, in this process


class Generator:
    """torchforge's actor of which `generate` is an endpoint."""

    def __init__(self) -> None:
        self.generate = self

    async def route(self, prompt: str) -> list[Completion]:
        reply = reply_to(prompt, "<assistant>")
        text = reply.text() + ("" if reply.is_cut else Letters.eos_token)
        ids = Letters().encode(text)
        return [Completion(text, Letters().encode(prompt), ids, [-0.5] * len(ids), 1)]


def torchforge(run: TrainerRun) -> TrainerResult:
    async def play(case: TrainerCase) -> TrainerRollout:
        reset = dict(case.row)
        messages = reset.pop("prompt")
        told = await rollout(
            Generator(),
            Letters(),
            run.address,
            messages=messages,
            reset=reset,
            max_turns=run.max_turns,
            retries=0,
        )
        written = [one for one, mine in zip(told.completion_ids, told.mask, strict=True) if mine]
        shown = Letters().decode(told.prompt_ids + told.completion_ids)
        return TrainerRollout(told.reward, any(told.mask), shown, Letters().decode(written))

    return TrainerResult(asyncio.run(side_by_side(run, play)))


def test_torchforge() -> None:
    checked(torchforge, "torchforge")
