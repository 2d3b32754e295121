"""Many sessions of one process, stepped together: steps a second.

    python many_sessions.py URL clients SESSIONS SECONDS

`clients` is one client a session, stepped with `asyncio.gather`, as trainers do.
"""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from one_session import ACTION, EchoEnv, moment  # type: ignore[import-not-found] # beside it

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


MODES = {"clients": step_clients}


def main() -> None:
    url, mode, sessions, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(MODES[mode](url, int(sessions), float(seconds)))))


if __name__ == "__main__":
    main()
