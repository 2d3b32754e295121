"""The public package's async client in the league; run by a Python that has the package."""

from __future__ import annotations

import asyncio
from typing import Any

from playing import Order, play, tell  # type: ignore[import-not-found]  # in this folder

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State

CONNECT_TIMEOUT_S = 120  # all sessions connect at once


class EchoAction(Action):
    text: str


class EchoObservation(Observation):
    text: str


class EchoEnv(EnvClient[EchoAction, EchoObservation, State]):
    def _step_payload(self, action: EchoAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[EchoObservation]:
        observation = EchoObservation(
            **payload["observation"], reward=payload.get("reward"), done=payload["done"]
        )
        return StepResult(
            observation=observation, reward=payload.get("reward"), done=payload["done"]
        )

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


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


def main() -> None:
    order = Order.given()
    tell(asyncio.run(play(order, lambda: EchoSession(order.url))))


if __name__ == "__main__":
    main()
