"""Runs code on our coding server as a client written for the public package does.

`python coding_client.py URL` is run by the peer's Python and by ours, and prints what it saw.
"""

import asyncio
import json
import sys

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State


class CodeAction(Action):
    code: str


class CodeObservation(Observation):
    """The public base class refuses fields that it does not know."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodeState(State):
    last_exit_code: int = 0


class CodingEnv(EnvClient[CodeAction, CodeObservation, CodeState]):
    def _step_payload(self, action):
        return {"code": action.code}

    def _parse_result(self, payload):
        observation = CodeObservation(**payload["observation"])
        return StepResult(
            observation=observation, reward=payload.get("reward"), done=bool(payload.get("done"))
        )

    def _parse_state(self, payload):
        return CodeState(
            episode_id=payload.get("episode_id"),
            step_count=payload.get("step_count", 0),
            last_exit_code=payload.get("last_exit_code", 0),
        )


PIECES = [
    "x = 6",
    "print(x * 7)",
    "1 / 0",
    "import os",
    "print('a' * 200)  # " + "long " * 20,
    "x = (",
    "x",
]


def shown(result):
    seen = result.observation
    last_line = (seen.stderr.strip().splitlines() or [""])[-1]
    return {
        "stdout": seen.stdout,
        "last_line": last_line,
        "exit_code": seen.exit_code,
        "violation": seen.metadata.get("safety_violation"),
        "last_code": seen.metadata.get("last_code"),
        "reward": result.reward,
        "done": result.done,
    }


def in_sync(url):
    with CodingEnv(base_url=url).sync() as env:
        seen = [shown(env.reset())]
        seen += [shown(env.step(CodeAction(code=code))) for code in PIECES]
        seen.append(env.state().model_dump(mode="json", exclude={"episode_id"}))
        seen.append(shown(env.reset()))
        return [*seen, shown(env.step(CodeAction(code="x")))]


async def in_async(url):
    async with CodingEnv(base_url=url) as env:
        seen = [shown(await env.reset())]
        seen += [shown(await env.step(CodeAction(code=code))) for code in PIECES]
        seen.append((await env.state()).model_dump(mode="json", exclude={"episode_id"}))
        seen.append(shown(await env.reset()))
        return [*seen, shown(await env.step(CodeAction(code="x")))]


async def side_by_side(url):
    return await asyncio.gather(*(in_async(url) for _ in range(3)))


def main(url):
    return {
        "sync": in_sync(url),
        "async": asyncio.run(in_async(url)),
        "side by side": asyncio.run(side_by_side(url)),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201
