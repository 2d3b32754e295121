"""Step times of sessions beside a slow session, and without it.

Two hundred sessions of one manager step every 50 ms, like sessions that wait for a policy, while a
step of another session takes a second. There is no network in between, so only the executors are
measured.

    python benchmarks/neighbours.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

from openenv import Action, Environment, Observation, State
from openenv.execution.commands import Step
from openenv.execution.manager import ConcurrencyConfig, SessionManager
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec

SESSIONS = 200
PAUSE_S = 0.05
SLOW_S = 1.0


class Rest(Action):
    """The duration of a step, in seconds."""

    seconds: float = 0.0


class OwnThreads(Environment[Rest, Observation, State]):
    """An undeclared environment: sessions have own threads until they are measured to be quick."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **_: Any
    ) -> Observation:
        return Observation()

    def step(self, action: Rest, timeout_s: float | None = None, **_: Any) -> Observation:
        if action.seconds:
            time.sleep(action.seconds)
        return Observation()

    @property
    def state(self) -> State:
        return State()


class AnyThread(OwnThreads):
    """An environment whose calls may come from any thread."""

    SUPPORTS_ANY_THREAD = True


async def measure(cls: type[OwnThreads], slow_s: float) -> dict[str, float]:
    """Step 200 sessions for a second, beside a session whose step takes `slow_s`."""
    manager = SessionManager(
        EnvironmentSpec.of(cls, Rest, Observation), ConcurrencyConfig(max_concurrent_envs=300)
    )
    slow, *quick = await asyncio.gather(*(manager.create() for _ in range(SESSIONS + 1)))
    took: list[float] = []

    async def play(session: Session, begin: float) -> None:
        await asyncio.sleep(begin)
        while not beside.done():
            began = time.perf_counter()
            await session.handle(Step(Rest()))
            took.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_S)

    async def one_slow() -> None:
        if slow_s:
            await slow.handle(Step(Rest(seconds=slow_s)))
        else:
            await asyncio.sleep(SLOW_S)

    beside = asyncio.ensure_future(one_slow())
    starts = [PAUSE_S * number / SESSIONS for number in range(SESSIONS)]
    await asyncio.gather(*map(play, quick, starts))
    await manager.aclose()
    took.sort()
    return {
        "steps": len(took),
        "p50_ms": took[len(took) // 2] * 1000,
        "p99_ms": took[int(len(took) * 0.99)] * 1000,
        "max_ms": took[-1] * 1000,
    }


def main() -> None:
    """Print a line for each kind of environment, alone and beside a slow step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args()
    rows = []
    for cls in (OwnThreads, AnyThread):
        for slow_s in (0.0, SLOW_S):
            seen = asyncio.run(measure(cls, slow_s))
            rows.append({"environment": cls.__name__, "slow_s": slow_s, **seen})
            if not options.json:
                beside = f"beside a step of {slow_s:g} s" if slow_s else "alone"
                print(
                    f"{cls.__name__:<12}{beside:<24}p50 {seen['p50_ms']:7.2f} ms"
                    f"  p99 {seen['p99_ms']:7.2f} ms  max {seen['max_ms']:7.2f} ms"
                )
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
