"""Rollouts of one trainer process, each of which waits for a slow policy; total seconds.

    python policy_rollouts.py URL {clients,sessions,policy} ROLLOUTS TURNS POLICY_S

Every rollout is a task: wait for the policy, step, repeat. `clients` is one client per rollout, of
either package; `sessions` is `openenv.rollouts.EpisodeSessions`, which only our package has;
`policy` only waits, which is the lower limit for any environment.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from one_session import ACTION, EchoEnv  # type: ignore[import-not-found]  # in this folder

CONNECT_TIMEOUT_S = 60  # all clients connect at once
WARM_UP = 3

Step = Callable[[], Awaitable[Any]]


async def timed(steps: list[Step], turns: int, policy_s: float) -> dict[str, float]:
    """Play all rollouts, with starts spread over one turn of the policy."""

    async def play(number: int, step: Step) -> float:
        inside = 0.0
        await asyncio.sleep(policy_s * number / len(steps))
        for _ in range(turns):
            await asyncio.sleep(policy_s)
            began = time.perf_counter()
            await step()
            inside += time.perf_counter() - began
        return inside

    began, cpu = time.perf_counter(), time.process_time()
    inside = await asyncio.gather(*(play(number, step) for number, step in enumerate(steps)))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    count = len(steps) * turns
    return {"wall_s": wall, "step_ms": sum(inside) / count * 1e3, "cpu_us": cpu / count * 1e6}


async def by_clients(url: str, rollouts: int, turns: int, policy_s: float) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        envs = [EchoEnv(base_url=url, connect_timeout_s=CONNECT_TIMEOUT_S) for _ in range(rollouts)]
        await asyncio.gather(*(stack.enter_async_context(env) for env in envs))
        await asyncio.gather(*(env.reset() for env in envs))
        for _ in range(WARM_UP):
            await asyncio.gather(*(env.step(ACTION) for env in envs))
        return await timed([partial(env.step, ACTION) for env in envs], turns, policy_s)


async def by_sessions(url: str, rollouts: int, turns: int, policy_s: float) -> dict[str, float]:
    from openenv.rollouts import EpisodeSessions  # only our package has it

    found = await EpisodeSessions.of(url)
    (tool,) = found.interface.tools
    sessions = [await found.take() for _ in range(rollouts)]
    await asyncio.gather(*(session.reset() for session in sessions))
    arguments = {"message": ACTION.message}
    steps: list[Step] = [partial(session.call, tool.name, arguments) for session in sessions]
    for _ in range(WARM_UP):
        await asyncio.gather(*(step() for step in steps))
    measured = await timed(steps, turns, policy_s)
    await found.aclose()
    return measured


async def by_policy(url: str, rollouts: int, turns: int, policy_s: float) -> dict[str, float]:
    async def nothing() -> None:
        return None

    return await timed([nothing] * rollouts, turns, policy_s)


def main() -> None:
    url, mode, rollouts, turns, policy_s = sys.argv[1:]
    way = {"clients": by_clients, "sessions": by_sessions, "policy": by_policy}[mode]
    print(json.dumps(asyncio.run(way(url, int(rollouts), int(turns), float(policy_s)))))


if __name__ == "__main__":
    main()
