"""Steps per second of many sessions of one process that are stepped together.

    python many_sessions.py URL MODE SESSIONS SECONDS

Modes that are measured for some seconds, after a warm-up:

- `clients`: one client per session, stepped with `asyncio.gather`, as trainers do
- `vector`: `VectorEnv.step`
- `halves`: `VectorEnv.send` and `recv`, with half of the sessions at a time

Modes with a fixed amount of work, from the first connect to the last close:

- `cold`: all sessions connect at once, reset, step ten times and close
- `churn`: 2,000 episodes of five steps, each in a new session, at most SESSIONS at once
- `kept`: the same episodes in SESSIONS sessions that stay open, each episode begun by a reset
"""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from one_session import (  # type: ignore[import-not-found]  # in this folder
    ACTION,
    EchoAction,
    EchoEnv,
    EchoObservation,
    moment,
)

from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import State

WARM_UP = 3
COLD_STEPS = 10
EPISODES, EPISODE_STEPS = 2000, 5
CONNECT_TIMEOUT_S = 60  # all sessions connect at once


async def step_clients(url: str, sessions: int, seconds: float) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        envs = [EchoEnv(base_url=url, connect_timeout_s=CONNECT_TIMEOUT_S) for _ in range(sessions)]
        await asyncio.gather(*(stack.enter_async_context(env) for env in envs))
        await asyncio.gather(*(env.reset() for env in envs))
        for _ in range(WARM_UP):
            await asyncio.gather(*(env.step(ACTION) for env in envs))
        began, batches = moment(), 0
        while time.perf_counter() < began[0] + seconds:
            results = await asyncio.gather(*(env.step(ACTION) for env in envs))
            batches += 1
        wall, cpu = (now - then for now, then in zip(moment(), began, strict=True))
    assert all(result.observation.length == len(ACTION.message) for result in results)
    steps = batches * sessions
    return {"steps": steps, "steps_per_s": steps / wall, "cpu_us": cpu / steps * 1e6}


async def play_cold(url: str, sessions: int) -> dict[str, Any]:
    async def one() -> None:
        async with client(url) as env:
            await env.reset()
            for _ in range(COLD_STEPS):
                await env.step(ACTION)

    began = moment()
    await asyncio.gather(*(one() for _ in range(sessions)))
    return played(sessions, COLD_STEPS, began)


async def play_churn(url: str, sessions: int, *, keeps: bool) -> dict[str, Any]:
    episodes = iter(range(EPISODES))

    async def play(env: Any) -> None:
        await env.reset()
        for _ in range(EPISODE_STEPS):
            result = await env.step(ACTION)
        assert result.observation.length == len(ACTION.message)

    async def slot() -> None:
        if keeps:
            async with client(url) as env:
                for _ in episodes:
                    await play(env)
            return
        for _ in episodes:
            async with client(url) as env:
                await play(env)

    began = moment()
    await asyncio.gather(*(slot() for _ in range(sessions)))
    return played(EPISODES, EPISODE_STEPS, began)


def client(url: str) -> Any:
    return EchoEnv(base_url=url, connect_timeout_s=CONNECT_TIMEOUT_S)


def played(episodes: int, steps: int, began: Any) -> dict[str, Any]:
    wall, cpu = (now - then for now, then in zip(moment(), began, strict=True))
    count = episodes * steps
    return {
        "steps": count,
        "steps_per_s": count / wall,
        "episodes_per_s": episodes / wall,
        "cpu_us": cpu / count * 1e6,
    }


def step_vector(url: str, sessions: int, seconds: float, parts: int) -> dict[str, Any]:
    from openenv import VectorEnv  # only our package has it

    class Typed(EnvClient[EchoAction, EchoObservation, State]):
        """A client without the hooks that the public package requires."""

    batch_size = sessions // parts
    with VectorEnv(url, sessions, client=Typed, batch_size=batch_size) as envs:
        actions = [ACTION] * batch_size
        envs.reset(seed=0)
        if parts > 1:
            envs.send([ACTION] * sessions)

        def step() -> Any:
            if parts == 1:
                return envs.step(actions)
            batch = envs.recv()
            envs.send(actions, batch[4]["env_id"])
            return batch

        for _ in range(WARM_UP):
            step()
        began, batches = moment(), 0
        while time.perf_counter() < began[0] + seconds:
            assert (step()[0]["length"] == len(ACTION.message)).all()
            batches += 1
        wall, cpu = (now - then for now, then in zip(moment(), began, strict=True))
    steps = batches * batch_size
    return {"steps": steps, "steps_per_s": steps / wall, "cpu_us": cpu / steps * 1e6}


def measured(mode: str, url: str, sessions: int, seconds: float) -> dict[str, Any]:
    if mode == "clients":
        return asyncio.run(step_clients(url, sessions, seconds))
    if mode == "cold":
        return asyncio.run(play_cold(url, sessions))
    if mode in ("churn", "kept"):
        return asyncio.run(play_churn(url, sessions, keeps=mode == "kept"))
    return step_vector(url, sessions, seconds, {"vector": 1, "halves": 2}[mode])


def main() -> None:
    url, mode, sessions, seconds = sys.argv[1:]
    print(json.dumps(measured(mode, url, int(sessions), float(seconds))))


if __name__ == "__main__":
    main()
