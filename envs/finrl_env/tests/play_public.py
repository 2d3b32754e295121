"""A program that trades with the public package's client, and prints the results.

Run it as `python play_public.py BASE_URL` with a Python that has the public package.
"""

# mypy: ignore-errors

import asyncio
import json
import sys
import urllib.request

from pydantic import Field

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State


class FinRLAction(Action):
    actions: list[float]


class FinRLObservation(Observation):
    state: list[float]
    portfolio_value: float = 0.0
    date: str = Field(default="")


class FinRLEnv(EnvClient[FinRLAction, FinRLObservation, State]):
    def _step_payload(self, action):
        return {"actions": action.actions}

    def _parse_result(self, payload):
        fields = {name: payload.get(name) for name in ("reward", "done")}
        observation = FinRLObservation(**{**payload["observation"], **fields})
        return StepResult(
            observation=observation, reward=payload.get("reward"), done=payload.get("done", False)
        )

    def _parse_state(self, payload):
        return State(**payload)


def shown(result):
    seen = result.observation
    return {
        "state": seen.state,
        "portfolio_value": seen.portfolio_value,
        "date": seen.date,
        "reward": result.reward,
        "done": result.done,
    }


def refused(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return None


def by_sync(url):
    """Play an episode to its end, with some invalid actions."""
    with FinRLEnv(base_url=url).sync() as env:
        early = refused(lambda: env.step(FinRLAction(actions=[1.0])))
        seen = [shown(env.reset())]
        mistakes = [early, refused(lambda: env.step(FinRLAction(actions=[1.0, 0.5])))]
        while not seen[-1]["done"]:
            amount = 0.5 if len(seen) % 2 else -0.25
            seen.append(shown(env.step(FinRLAction(actions=[amount]))))
        mistakes.append(refused(lambda: env.step(FinRLAction(actions=[0.0]))))
        state = env.state()
        return {
            "seen": seen,
            "mistakes": mistakes,
            "step_count": state.step_count,
            "episode_id": state.episode_id,
        }


async def by_async(url):
    async with FinRLEnv(base_url=url) as env:
        seen = [shown(await env.reset(seed=3, episode_id="mine"))]
        actions = [FinRLAction(actions=[amount]) for amount in (1.0, -1.0, 0.3)]
        seen += [shown(await env.step(action)) for action in actions]
        state = await env.state()
    return {"seen": seen, "step_count": state.step_count, "episode_id": state.episode_id}


def config(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/config", timeout=20) as response:
        return json.loads(response.read())


def main(url):
    return {"sync": by_sync(url), "async": asyncio.run(by_async(url)), "config": config(url)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201
