"""Our clients in the league: `EnvClient` by await, and `VectorEnv`."""

from __future__ import annotations

import asyncio
from typing import Any

from playing import (  # type: ignore[import-not-found]  # in this folder
    ClientSession,
    Order,
    play,
    play_batches,
    tell,
)

from openenv import EnvClient, VectorEnv
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):
    text: str


class EchoObservation(Observation):
    text: str


class EchoEnv(EnvClient[EchoAction, EchoObservation, State]):
    """A client without any code of its own."""


class EchoBatch:
    def __init__(self, url: str, count: int) -> None:
        self._envs = VectorEnv(url, count, client=EchoEnv)

    def reset(self) -> None:
        self._envs.reset()

    def step(self, texts: list[str]) -> tuple[Any, Any]:
        found = self._envs.step([EchoAction(text=text) for text in texts])
        return found[0]["text"], found[1]

    def close(self) -> None:
        self._envs.close()


def main() -> None:
    order = Order.given()
    if order.how == "vector":
        tell(play_batches(order, lambda count: EchoBatch(order.url, count)))
    else:
        tell(asyncio.run(play(order, lambda: ClientSession(EchoEnv, EchoAction, order.url))))


if __name__ == "__main__":
    main()
