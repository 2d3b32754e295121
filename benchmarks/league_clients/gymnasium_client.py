"""Gymnasium's AsyncVectorEnv in the league: a process for each environment, and no server."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
from gymnasium.spaces import Text
from playing import Order, play_batches, tell  # type: ignore[import-not-found]  # in this folder


class EchoEnv(gymnasium.Env[str, str]):
    observation_space = Text(min_length=0, max_length=16, charset=string.digits)
    action_space = Text(min_length=0, max_length=16, charset=string.digits)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return action, 1.0, False, False, {}


class EchoBatch:
    def __init__(self, count: int) -> None:
        # Texts have no arrays that processes could share.
        self._envs = gymnasium.vector.AsyncVectorEnv([EchoEnv] * count, shared_memory=False)

    def reset(self) -> None:
        observations, _ = self._envs.reset()
        assert not any(observations)

    def step(self, texts: list[str]) -> tuple[Any, Any]:
        found = self._envs.step(tuple(texts))
        return found[0], found[1]

    def close(self) -> None:
        self._envs.close()


def main() -> None:
    tell(play_batches(Order.given(), EchoBatch))


if __name__ == "__main__":
    main()
