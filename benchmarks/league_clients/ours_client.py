"""Our clients in the league: `EnvClient` by await, and `VectorEnv`."""

from __future__ import annotations

import asyncio
from typing import Any

from playing import (  # type: ignore[import-not-found]  # in this folder
    Order,
    play,
    play_batches,
    tell,
)

from openenv import EnvClient, VectorEnv
from openenv.core.env_server.types import Action, Observation, State

CONNECT_TIMEOUT_S = 120  # all sessions connect at once


class EchoAction(Action):
    text: str


class EchoObservation(Observation):
    text: str


class EchoEnv(EnvClient[EchoAction, EchoObservation, State]):
    """A client without any code of its own."""


class EchoSession:
    def __init__(self, url: str) -> None:
        self._env = EchoEnv(base_url=url, connect_timeout_s=CONNECT_TIMEOUT_S)

    async def __aenter__(self) -> EchoSession:
        await self._env.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._env.__aexit__(None, None, None)

    async def reset(self) -> None:
        result = await self._env.reset()
        assert result.observation.text == ""

    async def step(self, text: str) -> tuple[str, float | None]:
        result = await self._env.step(EchoAction(text=text))
        return result.observation.text, result.reward

    async def finish(self) -> None:
        pass


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
        tell(asyncio.run(play(order, lambda: EchoSession(order.url))))


if __name__ == "__main__":
    main()
