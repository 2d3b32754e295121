"""Plays the environments of this folder by the public interface, and prints what it saw.

`python public_client.py GRID_URL WORDS_URL` is run by the peer's Python and by ours, against
the peer's server and against ours: it prints the same every time.
"""

import asyncio
import json
import sys
import urllib.error
import urllib.request
import warnings

from public_environment import Direction, GridAction, GridObservation

from openenv.core import GenericAction, GenericEnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import State
from openenv.core.sync_client import SyncEnvClient
from openenv.core.utils import convert_to_ws_url, run_async_safely

MOVES = [
    GridAction(distance=3),
    GridAction(direction=Direction.DOWN, distance=1, note="back"),
    GridAction(direction="down", distance=5),  # falls off: an error, and the episode goes on
    GridAction(distance=9, metadata={"by": "test"}),
]


class GridEnv(EnvClient[GridAction, GridObservation, State]):
    def _step_payload(self, action):
        return action.model_dump(mode="json")

    def _parse_result(self, payload):
        observation = GridObservation(
            **{**payload["observation"], "reward": payload["reward"], "done": payload["done"]}
        )
        return StepResult(
            observation=observation,
            reward=payload.get("reward"),
            done=payload.get("done", False),
            metadata=payload.get("metadata"),
        )

    def _parse_state(self, payload):
        return State(**payload)


def shown(result):
    observation = result.observation
    if not isinstance(observation, dict):
        observation = observation.model_dump(mode="json")
        observation.pop("truncated", None)  # newer than the public package
    return [observation, result.reward, result.done, result.metadata]


def attempt(call):
    try:
        return shown(call())
    except RuntimeError as error:
        return first_line(error)


def first_line(error):
    return str(error).splitlines()[0]  # ours goes on to say which field was refused


def play(client):
    seen = [shown(client.reset())]
    seen += [attempt(lambda move=move: client.step(move)) for move in MOVES]
    state = client.state()
    return [*seen, state.model_dump(), isinstance(state, State)]


async def play_async(client):
    seen = [shown(await client.reset())]
    for move in MOVES:
        try:
            seen.append(shown(await client.step(move)))
        except RuntimeError as error:
            seen.append(first_line(error))
    state = await client.state()
    return [*seen, state.model_dump(), isinstance(state, State)]


def bare(url):
    client = GridEnv(base_url=url)
    try:
        return play(client)
    finally:
        client.close()


def with_sync(url):
    with GridEnv(base_url=url).sync() as client:
        assert isinstance(client, SyncEnvClient)
        return play(client)


def with_block(url):
    with GridEnv(base_url=url) as client:
        return play(client)


async def async_with(url):
    async with GridEnv(base_url=url) as client:
        return await play_async(client)


async def awaited(url):
    client = GridEnv(base_url=url)
    try:
        return await play_async(client)
    finally:
        await client.close()


def generic(url):
    refused = {"distance": 12, "speed": 1}
    with GenericEnvClient(base_url=url).sync() as client:
        return [
            shown(client.reset()),
            shown(client.step({"distance": 2})),
            shown(client.step(GenericAction(direction="down", distance=1))),
            attempt(lambda: client.step(refused)),
            client.state(),
        ]


def words(url):
    with GenericEnvClient(base_url=url).sync() as client:
        first = [shown(client.reset(first="twice", seed=1, episode_id="e"))]
        rest = [shown(client.step({"word": word})) for word in ("a", "end")]
        return [*first, *rest, client.state()]


def request(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data, headers), timeout=20) as response:
            return [response.status, json.loads(response.read())]
    except urllib.error.HTTPError as error:
        return [error.code, json.loads(error.read())]


def over_http(url):
    return {
        "health": request(f"{url}/health"),
        "metadata": request(f"{url}/metadata"),
        "reset": request(f"{url}/reset", {}),
        "step": request(f"{url}/step", {"action": {"distance": 4}}),
        "refused": request(f"{url}/step", {"action": {"distance": 40}}),
        "malformed": request(f"{url}/step", {"deed": {}}),
        "state": request(f"{url}/state"),
    }


def main(grid, words_url):
    warnings.simplefilter("ignore")
    return {
        "bare": bare(grid),
        "sync": with_sync(grid),
        "with": with_block(grid),
        "async with": asyncio.run(async_with(grid)),
        "await": asyncio.run(awaited(grid)),
        "run_async_safely": run_async_safely(async_with(grid)),
        "generic": generic(grid),
        "words": words(words_url),
        "http": over_http(grid),
        "ws url": convert_to_ws_url("https://somewhere:8000/"),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201
