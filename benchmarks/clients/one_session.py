"""The client's cost of one session: CPU time of this process per step, after a warm-up.

    python one_session.py URL {async,sync} STEPS

The program uses only the public interface, so each side's Python runs it unchanged. The URL is that
of a bare server, so that the results differ only by the client.
"""

import asyncio
import json
import sys
import time
from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State

WARM_UP = 300


class EchoAction(Action):
    message: str


class EchoObservation(Observation):
    echoed: str
    length: int


class EchoEnv(EnvClient[EchoAction, EchoObservation, State]):
    def _step_payload(self, action: EchoAction) -> dict[str, Any]:
        return {"message": action.message}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[EchoObservation]:
        observation = EchoObservation(
            **payload["observation"], reward=payload.get("reward"), done=payload["done"]
        )
        return StepResult(
            observation=observation, reward=payload.get("reward"), done=payload["done"]
        )

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


ACTION = EchoAction(message="hello, world")


async def step_async(url: str, steps: int) -> dict[str, Any]:
    async with EchoEnv(base_url=url) as env:
        await env.reset()
        for _ in range(WARM_UP):
            await env.step(ACTION)
        began = moment()
        for _ in range(steps):
            result = await env.step(ACTION)
        return took(began, steps, result)


def step_sync(url: str, steps: int) -> dict[str, Any]:
    with EchoEnv(base_url=url).sync() as env:
        env.reset()
        for _ in range(WARM_UP):
            env.step(ACTION)
        began = moment()
        for _ in range(steps):
            result = env.step(ACTION)
        return took(began, steps, result)


def moment() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def took(began: tuple[float, float], steps: int, last: Any) -> dict[str, Any]:
    wall, cpu = (now - then for now, then in zip(moment(), began, strict=True))
    assert last.observation.length == len(ACTION.message), last
    return {"steps": steps, "wall_us": wall / steps * 1e6, "cpu_us": cpu / steps * 1e6}


def main() -> None:
    url, mode, steps = sys.argv[1:]
    if mode == "async":
        result = asyncio.run(step_async(url, int(steps)))
    else:
        result = step_sync(url, int(steps))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
