"""Play as SkyRL does, with its skyrl-gym; run by a Python that has that. Prints JSON.

    python skyrl_play.py WAY ADDRESS...

SkyRL's generator makes an environment by its name on its event loop, and has `init`, `step` and
`close` run by a pool of threads; it wants a card with CUDA, so that its loop is written here anew.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import skyrl_gym  # type: ignore[import-not-found]
from omegaconf import OmegaConf  # type: ignore[import-not-found]
from skyrl_gym.envs import registration  # type: ignore[import-not-found]
from skyrl_gym.envs.base_text_env import (  # type: ignore[import-not-found]
    BaseTextEnv,
    BaseTextEnvStepOutput,
)
from trainers.buttons import Buttons, Press, Wall, obedient

from openenv import Environment, State
from openenv.integrations.skyrl import register
from openenv.reward import RewardSpec

PROMPT = [{"role": "user", "content": "Do as you are told."}]


def reply_to(said: str) -> str:
    button = obedient(said)
    return "I leave it there." if button is None else json.dumps({"button": button})


async def play(pool: ThreadPoolExecutor, name: str, extras: dict[str, Any]) -> dict[str, Any]:
    """One trajectory."""
    loop = asyncio.get_running_loop()
    configured = OmegaConf.create(extras.pop("env_config", {}))
    env = skyrl_gym.make(name, env_config=configured, extras=extras)
    rewards: list[float] = []
    try:
        conversation, _ = await loop.run_in_executor(pool, env.init, list(PROMPT))
        shown, done = list(conversation), False
        while not done:
            output = reply_to(conversation[-1]["content"])
            step = await loop.run_in_executor(pool, env.step, output)
            rewards.append(step["reward"])
            done = step["done"]
            conversation = conversation + step["observations"]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "rewards": rewards}
    metrics = env.get_metrics()
    await loop.run_in_executor(pool, env.close)
    return {"shown": shown, "rewards": rewards, "metrics": metrics}


class Call(Press):
    """Press a button, perhaps loudly."""

    loud: bool = False


class Loud(Environment[Call, Wall, State]):
    """Its actions are more than a text."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("terminal", (0.0, 1.0))

    def reset(self, seed: int | None = None) -> Wall:  # type: ignore[override]
        return Wall(text="press go")

    def step(self, action: Call) -> Wall:  # type: ignore[override]
        return Wall(text="thank you", done=True, reward=1.0)

    @property
    def state(self) -> State:
        return State()


async def played(name: str, rows: list[dict[str, Any]], workers: int) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(workers) as pool:
        return list(await asyncio.gather(*(play(pool, name, row) for row in rows)))


def refusal(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def told_elsewhere(spec: bytes, row: dict[str, Any]) -> list[dict[str, Any]]:
    """In a process that has registered nothing."""
    env_spec = pickle.loads(spec)
    registration.registry[env_spec.id] = env_spec
    return asyncio.run(played(env_spec.id, [row], 1))


def ours(address: str) -> dict[str, Any]:
    register("buttons", environment=address, retries=0)
    register("each", environment=address, rewarded="each_step")
    register("loud", environment=Loud)
    register("words", environment=address, unfinished=-1.0)
    rows = [{"seed": seed, "max_turns": 4, "data_source": "x"} for seed in range(5)]
    spec = pickle.dumps(registration.registry["buttons"])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        elsewhere = pool.apply(told_elsewhere, (spec, {"seed": 0, "max_turns": 4}))
    register("gone", environment="http://127.0.0.1:9", retries=0)
    return {
        "at_end": asyncio.run(played("buttons", [dict(row) for row in rows], 5)),
        "each_step": asyncio.run(played("each", [dict(rows[0]), {**rows[3], "max_turns": 2}], 1)),
        "loud": asyncio.run(played("loud", [{"max_turns": 1}], 1)),
        "words": asyncio.run(played("words", [{**rows[3], "max_turns": 2}], 1)),
        "configured": asyncio.run(
            played("words", [{**rows[3], "max_turns": 2, "env_config": {"unfinished": -2.0}}], 1)
        ),
        "elsewhere": elsewhere,
        "gone": asyncio.run(played("gone", [dict(rows[0])], 1)),
        "misnamed": refusal(lambda: skyrl_gym.make("buttons", env_config={"turns": 1})),
        "unsendable": refusal(lambda: register("lambda", environment=lambda: Buttons())),
    }


# ------------------------------------------------------------------ SkyRL's own class


class TheirEnv(BaseTextEnv):  # type: ignore[misc]
    """What SkyRL's own integration calls of an environment, in its order and manner."""

    def __init__(self, env_config: Any, extras: dict[str, Any]) -> None:
        super().__init__()
        self.extras = extras
        self.max_turns = extras["max_turns"]
        self.env = self._client(extras["env_name"])(base_url=extras["address"])
        self.first = self.env.reset()

    def _client(self, name: str) -> Any:
        from envs.coding_env import CodingEnv
        from envs.echo_env import EchoEnv
        from envs.openspiel_env import OpenSpielEnv

        return {"echo_env": EchoEnv, "coding_env": CodingEnv, "openspiel-env": OpenSpielEnv}[name]

    def _action(self, text: str) -> Any:
        from envs.coding_env import CodeAction
        from envs.echo_env import EchoAction
        from envs.openspiel_env import OpenSpielAction

        written = re.findall(r"<action>(.*?)</action>", text)[-1]
        if self.extras["env_name"] == "echo_env":
            return EchoAction(message=written)
        if self.extras["env_name"] == "coding_env":
            return CodeAction(code=written)
        return OpenSpielAction(action_id=int(written), game_name=self.extras["game_name"])

    def step(self, action: str) -> BaseTextEnvStepOutput:
        result = self.env.step(self._action(action))
        said = {"role": "user", "content": result.observation}
        return BaseTextEnvStepOutput(
            observations=[said], reward=result.reward, done=result.done, metadata={}
        )


def theirs(echo: str, coding: str, openspiel: str) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parents[2]))  # where `envs` is
    registration.register(id="openenv", entry_point=f"{TheirEnv.__module__}:TheirEnv")

    async def one(row: dict[str, Any], said: str) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            env = skyrl_gym.make("openenv", env_config={}, extras={"max_turns": 2, **row})
            await loop.run_in_executor(pool, env.init, list(PROMPT))
            step = await loop.run_in_executor(pool, env.step, f"<action>{said}</action>")
            seen = step["observations"][0]["content"].model_dump(mode="json")
            return {"seen": seen, "reward": step["reward"], "done": step["done"]}

    async def all_of_them() -> dict[str, Any]:
        game = {"env_name": "openspiel-env", "game_name": "catch", "address": openspiel}
        return {
            "echo": await one({"env_name": "echo_env", "address": echo}, "hello"),
            "coding": await one({"env_name": "coding_env", "address": coding}, "print(6 * 7)"),
            "openspiel": await one(game, "1"),
        }

    return asyncio.run(all_of_them())


if __name__ == "__main__":
    way, *addresses = sys.argv[1:]
    told = ours(*addresses) if way == "ours" else theirs(*addresses)
    sys.stdout.write("\n" + json.dumps(told) + "\n")
