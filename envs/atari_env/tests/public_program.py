"""A program that plays Atari with the public client, as users write it, and prints the results.

Run it as ``python public_program.py URL`` with a Python that has the public package.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any, Literal

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State

ACTIONS = [1, 2, 3, 4, 5, 0] * 4


class AtariAction(Action):
    action_id: int
    game_name: str = "pong"
    obs_type: Literal["rgb", "grayscale", "ram"] = "rgb"
    full_action_space: bool = False


class AtariObservation(Observation):
    screen: list[int]
    screen_shape: list[int]
    legal_actions: list[int]
    lives: int = 0
    episode_frame_number: int = 0
    frame_number: int = 0


class AtariState(State):
    game_name: str = ""
    obs_type: str = "rgb"
    full_action_space: bool = False
    mode: int | None = None
    difficulty: int | None = None
    repeat_action_probability: float = 0.0
    frameskip: int = 4


class AtariEnv(EnvClient[AtariAction, AtariObservation, AtariState]):
    def _step_payload(self, action: AtariAction) -> dict[str, Any]:
        return {
            "action_id": action.action_id,
            "game_name": action.game_name,
            "obs_type": action.obs_type,
            "full_action_space": action.full_action_space,
        }

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[AtariObservation]:
        reward, done = payload.get("reward"), payload.get("done", False)
        observation = AtariObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> AtariState:
        return AtariState(**payload)


def shown(result: StepResult[AtariObservation]) -> dict[str, Any]:
    seen = result.observation
    return {
        "screen": hashlib.sha256(bytes(seen.screen)).hexdigest(),
        "screen_shape": seen.screen_shape,
        "legal_actions": seen.legal_actions,
        "lives": seen.lives,
        "frames": [seen.episode_frame_number, seen.frame_number],
        "metadata": seen.metadata,
        "reward": result.reward,
        "done": result.done,
    }


def main(url: str) -> dict[str, Any]:
    with AtariEnv(base_url=url).sync() as env:
        seen = [shown(env.reset())]
        seen += [shown(env.step(AtariAction(action_id=action))) for action in ACTIONS]
        return {"seen": seen, "refused": refusal(env), "state": env.state().model_dump()}


def refusal(env: Any) -> str:
    try:
        env.step(AtariAction(action_id=99))
    except RuntimeError as error:
        return str(error)
    return "it was taken"


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))  # noqa: T201
