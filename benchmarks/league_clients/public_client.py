"""The public package's async client in the league; run by a Python that has the package."""

from __future__ import annotations

import asyncio
from typing import Any

from playing import ClientSession, Order, play, tell  # type: ignore[import-not-found]  # in this folder

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State


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


def main() -> None:
    order = Order.given()
    tell(asyncio.run(play(order, lambda: ClientSession(EchoEnv, EchoAction, order.url))))


if __name__ == "__main__":
    main()
