"""Many sessions of one process, stepped together: steps a second.

    python many_sessions.py URL clients SESSIONS SECONDS

`clients` is one client a session, stepped with `asyncio.gather`, as trainers do. `vector` is
`VectorEnv.step`; `halves` is its `send` and `recv`, half of the sessions at a time.
"""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from one_session import (  # type: ignore[import-not-found] # beside it
    ACTION,
    EchoAction,
    EchoEnv,
    EchoObservation,
    moment,
)

from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import State

WARM_UP = 3
CONNECT_TIMEOUT_S = 60  # all of them connect at once


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


def step_vector(url: str, sessions: int, seconds: float, parts: int) -> dict[str, Any]:
    from openenv import VectorEnv  # which only ours has

    class Typed(EnvClient[EchoAction, EchoObservation, State]):
        """Without the hooks that the public package asks for."""

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
    return step_vector(url, sessions, seconds, {"vector": 1, "halves": 2}[mode])


def main() -> None:
    url, mode, sessions, seconds = sys.argv[1:]
    print(json.dumps(measured(mode, url, int(sessions), float(seconds))))


if __name__ == "__main__":
    main()
