"""Frames of Pong per second, as NumPy arrays, for many games that are stepped together.

    python atari_frames.py URL {clients,vector,pipeline,alone} --games N --obs-type NAME
        --frameskip N --seconds S [--cpu-of PID ...]

`clients` is one client of the public package per game, stepped with `asyncio.gather`; `vector` is
`VectorEnv.step`, which only our package has; `pipeline` is its `send` and `recv`, which play one
half of the games while the other half's frames are processed; `alone` is ALE in this process,
stepped in a loop.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
from mcp_load import cpu_seconds  # type: ignore[import-not-found]  # in this folder

ACTIONS = 6
WARM_UP = 2
CONNECT_TIMEOUT_S = 120  # each session of a server loads a game when it opens

Step = Callable[[list[int]], list[bool]]


def measured(step: Step, options: argparse.Namespace, size: int = 0) -> dict[str, Any]:
    """Step `size` games (default: all) together, with random actions, until the time is over."""
    choices = random.Random(0)
    size = size or options.games

    def batch() -> None:
        step([choices.randrange(ACTIONS) for _ in range(size)])

    for _ in range(WARM_UP):
        batch()

    def now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), cpu_seconds(options.cpu_of)

    began, batches = now(), 0
    while time.perf_counter() < began[0] + options.seconds:
        batch()
        batches += 1
    wall, cpu, server_cpu = (ended - then for ended, then in zip(now(), began, strict=True))
    steps = batches * size
    return {
        "steps": steps,
        "steps_per_s": steps / wall,
        "cpu_us": cpu / steps * 1e6,
        "server_cpu_s": server_cpu,
    }


def step_alone(options: argparse.Namespace) -> dict[str, Any]:
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    screen = {"rgb": ALEInterface.getScreenRGB, "grayscale": ALEInterface.getScreenGrayscale}
    path = roms.get_rom_path("pong")
    assert path is not None

    def console() -> ALEInterface:
        ale = ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.loadROM(path)
        ale.reset_game()
        return ale

    consoles = [console() for _ in range(options.games)]
    actions = consoles[0].getMinimalActionSet()

    def step(ids: list[int]) -> list[bool]:
        over = []
        frames = []
        for ale, action_id in zip(consoles, ids, strict=True):
            for _ in range(options.frameskip):
                ale.act(actions[action_id])
                if ale.game_over():
                    break
            frames.append(screen[options.obs_type](ale))
            over.append(ale.game_over())
            if over[-1]:
                ale.reset_game()
        np.stack(frames)
        return over

    return measured(step, options)


def step_vector(options: argparse.Namespace) -> dict[str, Any]:
    from openenv import VectorEnv

    with VectorEnv(options.url, options.games, connect_timeout_s=CONNECT_TIMEOUT_S) as envs:
        envs.reset()

        def step(ids: list[int]) -> list[bool]:
            observations, _, terminations, *_ = envs.step({"action_id": ids})
            assert observations["screen"].dtype == np.uint8
            over: list[bool] = terminations.tolist()
            return over

        return measured(step, options)


def step_pipeline(options: argparse.Namespace) -> dict[str, Any]:
    from openenv import VectorEnv

    half = options.games // 2
    with VectorEnv(
        options.url, options.games, batch_size=half, connect_timeout_s=CONNECT_TIMEOUT_S
    ) as envs:
        envs.reset()
        envs.send({"action_id": [0] * options.games})

        def step(ids: list[int]) -> list[bool]:
            observations, _, terminations, _, infos = envs.recv()
            assert observations["screen"].dtype == np.uint8
            envs.send({"action_id": ids}, infos["env_id"])
            over: list[bool] = terminations.tolist()
            return over

        return measured(step, options, half)


def step_clients(options: argparse.Namespace) -> dict[str, Any]:
    from openenv.core.client_types import StepResult
    from openenv.core.env_client import EnvClient
    from openenv.core.env_server.types import Action, Observation, State

    class AtariAction(Action):
        action_id: int

    class AtariObservation(Observation):
        screen: list[int]
        screen_shape: list[int]
        legal_actions: list[int]
        lives: int = 0
        episode_frame_number: int = 0
        frame_number: int = 0

    class AtariEnv(EnvClient[AtariAction, AtariObservation, State]):
        def _step_payload(self, action: AtariAction) -> dict[str, Any]:
            return {"action_id": action.action_id}

        def _parse_result(self, payload: dict[str, Any]) -> StepResult[AtariObservation]:
            reward, done = payload.get("reward"), payload["done"]
            observation = AtariObservation(**payload["observation"], reward=reward, done=done)
            return StepResult(observation=observation, reward=reward, done=done)

        def _parse_state(self, payload: dict[str, Any]) -> State:
            return State(**payload)

    async def one(env: AtariEnv, action_id: int) -> tuple[Any, bool]:
        result = await env.step(AtariAction(action_id=action_id))
        seen = result.observation
        frame = np.array(seen.screen, np.uint8).reshape(seen.screen_shape)
        if result.done:
            await env.reset()
        return frame, result.done

    async def play() -> dict[str, Any]:
        async with AsyncExitStack() as stack:
            envs = [
                AtariEnv(
                    base_url=options.url,
                    connect_timeout_s=CONNECT_TIMEOUT_S,
                    message_timeout_s=CONNECT_TIMEOUT_S,
                )
                for _ in range(options.games)
            ]
            for env in envs:  # one by one, since this server would let some of them wait too long
                await stack.enter_async_context(env)
            await asyncio.gather(*(env.reset() for env in envs))
            loop = asyncio.get_running_loop()

            def step(ids: list[int]) -> list[bool]:
                async def together() -> list[tuple[Any, bool]]:
                    return await asyncio.gather(*map(one, envs, ids))

                results = asyncio.run_coroutine_threadsafe(together(), loop).result()
                np.stack([frame for frame, _ in results])
                return [over for _, over in results]

            return await asyncio.to_thread(measured, step, options)

    return asyncio.run(play())


MODES = {
    "alone": step_alone,
    "vector": step_vector,
    "pipeline": step_pipeline,
    "clients": step_clients,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--games", type=int, required=True)
    parser.add_argument("--obs-type", required=True)
    parser.add_argument("--frameskip", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--cpu-of", type=int, nargs="*", default=[])
    options = parser.parse_args()
    print(json.dumps(MODES[options.mode](options)))


if __name__ == "__main__":
    main()
