"""A small Gymnasium environment, and the same one as an environment of ours."""

from __future__ import annotations

from typing import Annotated, Any

import gymnasium
import numpy as np

from openenv import Action, EnvClient, Environment, Observation, State, StepResult
from openenv.arrays import Array


class GymWalk(gymnasium.Env[dict[str, Any], int]):
    """A walk of random length: it terminates at +-3 and is truncated after 7 steps."""

    observation_space = gymnasium.spaces.Dict(
        {
            "frame": gymnasium.spaces.Box(0, 255, (2, 3), np.uint8),
            "position": gymnasium.spaces.Box(-10, 10, (), np.float64),
        }
    )
    action_space = gymnasium.spaces.Discrete(3)  # type: ignore[assignment]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.count = float((options or {}).get("start", 0)), 0
        return self._seen(), {"begun": True}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.position += int(action) - 1 + float(self.np_random.integers(-1, 2))
        self.count += 1
        terminated = abs(self.position) >= 3
        truncated = self.count >= 7 and not terminated
        info: dict[str, Any] = {"count": self.count, "speed": self.position / self.count}
        if self.count % 2:
            info["note"] = f"odd {self.count}"
        return self._seen(), self.position / 4, terminated, truncated, info

    def _seen(self) -> dict[str, Any]:
        return {
            "frame": self.np_random.integers(0, 256, (2, 3), np.uint8),
            "position": np.float64(self.position),
        }


class Go(Action):
    to: int


class Walked(Observation):
    frame: Annotated[np.ndarray, Array(np.uint8, (2, 3))]
    position: float


class Walk(Environment[Go, Walked, State]):
    """The same walk."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def __init__(self) -> None:
        self.walk = GymWalk()

    def reset(self, seed: int | None = None, start: float = 0) -> StepResult[Walked]:  # type: ignore[override]
        observation, info = self.walk.reset(seed=seed, options={"start": start})
        return StepResult(Walked(**observation), info=info)

    def step(self, action: Go) -> StepResult[Walked]:  # type: ignore[override]
        observation, reward, terminated, truncated, info = self.walk.step(action.to)
        return StepResult(
            Walked(**observation), reward, terminated or truncated, None, truncated, info
        )


class WalkEnv(EnvClient[Go, Walked, State]):
    """Its client."""
