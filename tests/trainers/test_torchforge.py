"""torchforge's rollouts: by its own example's calls, and by our function.

torchforge is not to be had here: its package index entry is empty, and the source wants CUDA. So
its generator is a small copy of the convention (``src/forge/actors/generator.py``,
``src/forge/data_models/completion.py``): ``generate.route(prompt)`` takes a text, and gives
completions with tokens. The calls of a client are those of its blackjack example
(``apps/blackjack/main_v2.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from rollouts.test_tokens import END
from rollouts.test_tokens import Letters as AnyLetters
from support.commands import SOURCES
from support.servers import serving
from trainers.buttons import Buttons, obedient

from openenv.errors import ConnectError, Unscored
from openenv.integrations.torchforge import rollout
from openenv.server.app import create_app

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = SOURCES.parent


class Letters(AnyLetters):
    """Writes the end of a turn, too, where it is asked for."""

    def decode(self, token_ids: Any, **options: Any) -> str:
        text = "".join(map(chr, token_ids))
        return text.replace(END, "") if options.get("skip_special_tokens") else text


@dataclass
class Completion:
    text: str
    prompt_ids: list[int]
    token_ids: list[int]
    logprobs: list[float] | None
    generator_version: int | None


class Generator:
    """An actor of which `generate` is an endpoint, for a model that does as it is told."""

    def __init__(self, garbles: bool = False) -> None:
        self.generate = self
        self._garbles = garbles
        self._version = 7

    async def route(self, prompt: str, **request: Any) -> list[Completion]:
        assert request in ({}, {"sampling_params": "few"})
        await asyncio.sleep(0)
        text = json.dumps({"button": obedient(prompt) or "none"})
        ids = Letters().encode(text + END)
        self._version += 1
        read = Letters().encode("?" + prompt if self._garbles else prompt)
        return [Completion(text, read, ids, [-0.5] * len(ids), self._version)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """There is room for five episodes: one that is not given back would have the next wait."""
    with serving(create_app(Buttons, max_concurrent_envs=5)) as url:
        yield url


def play(address: str, seed: int, **options: Any) -> Any:
    return rollout(
        options.pop("generator", None) or Generator(),
        Letters(),
        address,
        messages=[{"role": "user", "content": "Obey."}],
        reset={"seed": seed},
        **options,
    )


def test_a_rollout_is_one_sequence_with_its_reward(address: str) -> None:
    told = asyncio.run(play(address, 0, request={"sampling_params": "few"}))
    assert (told.reward, told.steps, told.is_exact, told.generator_version) == (1.0, 2, True, 8)
    written = [one for one, mask in zip(told.completion_ids, told.mask, strict=True) if mask]
    reply = [json.dumps({"button": button}) + END for button in ("go", "on")]
    assert Letters().decode(written) == "".join(reply)
    assert Letters().decode(told.prompt_ids).endswith("Obey.\n\npress go\x03\n<assistant>")
    assert told.logprobs == [-0.5 * mask for mask in told.mask]


def test_tokens_that_the_model_has_read_otherwise_are_told_of(address: str) -> None:
    assert not asyncio.run(play(address, 0, generator=Generator(garbles=True))).is_exact


def test_what_fails_or_cannot_be_scored_raises_beside_what_does_not(address: str) -> None:
    async def group() -> list[Any]:
        rollouts = [play(address, seed, max_turns=3) for seed in range(5)]
        return await asyncio.gather(*rollouts, return_exceptions=True)

    fine, breaks, unscored, left, refused = asyncio.run(group())
    assert (fine.reward, left.reward, refused.reward) == (1.0, 1.5, 1.0)
    assert isinstance(breaks, Unscored)
    assert "the wall fell down" not in str(breaks), "what only the server's log tells"
    assert isinstance(unscored, Unscored)
    assert "the camera was off" in str(unscored)


def test_a_server_that_is_not_there_raises() -> None:
    with pytest.raises(ConnectError):
        asyncio.run(play("http://127.0.0.1:9", 0, retries=0))


# ------------------------------------------------------------------ its own example


@pytest.fixture(scope="module")
def blackjack() -> Iterator[str]:
    """The server, as the example starts it: by the module's name, on a port."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    path = os.pathsep.join([str(ROOT), str(SOURCES)])
    process = subprocess.Popen(
        [sys.executable, "-m", "envs.openspiel_env.server.app", "--port", str(port)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OPENSPIEL_GAME": "blackjack"},
    )
    try:
        address = f"http://localhost:{port}"
        wait_for(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """As the example does: until ``/health`` answers."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
            return
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


async def one_game(address: str) -> tuple[int, float | None]:
    """Synchronous calls in a coroutine, and a client for each game."""
    from envs.openspiel_env import OpenSpielAction, OpenSpielEnv

    env = OpenSpielEnv(base_url=address)
    try:
        result = env.reset()
        steps = 0
        while not result.done:
            await asyncio.sleep(0)  # where the model is asked
            assert 0 in result.observation.legal_actions
            result = env.step(OpenSpielAction(action_id=0, game_name="blackjack"))
            steps += 1
        return steps, result.reward
    finally:
        env.close()


def test_its_example_plays_by_synchronous_calls_in_coroutines(
    blackjack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # where `envs` is

    async def games() -> list[tuple[int, float | None]]:
        return await asyncio.gather(*(one_game(blackjack) for _ in range(4)))

    for steps, reward in asyncio.run(games()):
        assert steps >= 1
        assert reward in (-1.0, 0.0, 1.0)
