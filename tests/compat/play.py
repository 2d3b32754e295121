"""Plays echo and blackjack by the public client, and prints what it saw.

`python play.py ECHO_URL BLACKJACK_URL` is run by the peer's Python against our servers.
"""

import asyncio
import json
import sys

from openenv.core import GenericEnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.env_server.types import Action, State

SEEDS = range(6)
STAND = 1
HIT = 0


class EchoAction(Action):
    message: str


class OpenSpielAction(Action):
    action_id: int
    game_name: str = "blackjack"
    game_params: dict = {}  # noqa: RUF012


class PublicClient(EnvClient[Action, dict, State]):
    """What every client package of old writes: three hooks."""

    def _step_payload(self, action):
        return action.model_dump()

    def _parse_result(self, payload):
        return StepResult(payload["observation"], payload.get("reward"), payload.get("done"))

    def _parse_state(self, payload):
        return State(**payload)


def shown(result):
    return {"observation": result.observation, "reward": result.reward, "done": result.done}


ECHO_ACTIONS = [
    EchoAction(message="Hello, World!"),
    EchoAction(message=""),
    CallToolAction(tool_name="echo_message", arguments={"message": "hi"}),
    CallToolAction(tool_name="echo_with_length", arguments={"message": "abc"}),
    CallToolAction(tool_name="shout", arguments={}),
    ListToolsAction(),
]


def echo(client):
    seen = [shown(client.reset(seed=3, episode_id="episode 1"))]
    seen += [shown(client.step(action)) for action in ECHO_ACTIONS]
    return [*seen, client.state().model_dump()]


async def echo_async(client):
    seen = [shown(await client.reset(seed=3, episode_id="episode 1"))]
    seen += [shown(await client.step(action)) for action in ECHO_ACTIONS]
    state = await client.state()
    return [*seen, state.model_dump()]


def echo_bare(url):
    client = PublicClient(base_url=url)
    try:
        return echo(client)
    finally:
        client.close()


def echo_sync(url):
    with PublicClient(base_url=url).sync() as client:
        return echo(client)


async def echo_async_with(url):
    async with PublicClient(base_url=url) as client:
        return await echo_async(client)


async def echo_awaited(url):
    client = PublicClient(base_url=url)
    await client.connect()
    try:
        return await echo_async(client)
    finally:
        await client.close()


async def echo_side_by_side(url):
    return await asyncio.gather(*(echo_async_with(url) for _ in range(8)))


def echo_generic(url):
    with GenericEnvClient(base_url=url).sync() as client:
        seen = [shown(client.reset(seed=3, episode_id="episode 1"))]
        seen += [shown(client.step(action.model_dump())) for action in ECHO_ACTIONS]
        return [*seen, client.state()]


def choose(result, moves):
    """Hit once, then stand: whatever is dealt, the game ends."""
    legal = result.observation["legal_actions"]
    return HIT if moves == 0 and HIT in legal else legal[-1]


def blackjack(client, seed):
    result = client.reset(seed=seed, episode_id=f"game {seed}")
    seen = [shown(result)]
    while not result.done:
        action = OpenSpielAction(action_id=choose(result, len(seen) - 1))
        result = client.step(action)
        seen.append(shown(result))
    return [*seen, client.state().model_dump()]


async def blackjack_async(client, seed):
    result = await client.reset(seed=seed, episode_id=f"game {seed}")
    seen = [shown(result)]
    while not result.done:
        action = OpenSpielAction(action_id=choose(result, len(seen) - 1))
        result = await client.step(action)
        seen.append(shown(result))
    state = await client.state()
    return [*seen, state.model_dump()]


def blackjack_bare(url):
    client = PublicClient(base_url=url)
    try:
        return [blackjack(client, seed) for seed in SEEDS]
    finally:
        client.close()


def blackjack_sync(url):
    with PublicClient(base_url=url).sync() as client:
        return [blackjack(client, seed) for seed in SEEDS]


async def blackjack_one(url, seed):
    async with PublicClient(base_url=url) as client:
        return await blackjack_async(client, seed)


async def blackjack_side_by_side(url):
    return await asyncio.gather(*(blackjack_one(url, seed) for seed in SEEDS))


def illegal(url):
    with PublicClient(base_url=url).sync() as client:
        client.reset(seed=0)
        try:
            client.step(OpenSpielAction(action_id=7))
        except RuntimeError as error:
            return str(error)


def main(echo_url, blackjack_url):
    return {
        "echo": {
            "bare": echo_bare(echo_url),
            "sync": echo_sync(echo_url),
            "async with": asyncio.run(echo_async_with(echo_url)),
            "await": asyncio.run(echo_awaited(echo_url)),
            "generic": echo_generic(echo_url),
        },
        "echo side by side": asyncio.run(echo_side_by_side(echo_url)),
        "blackjack": {
            "bare": blackjack_bare(blackjack_url),
            "sync": blackjack_sync(blackjack_url),
            "side by side": asyncio.run(blackjack_side_by_side(blackjack_url)),
        },
        "illegal": illegal(blackjack_url),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201
