"""The client of the echo environment."""

from __future__ import annotations

from openenv.client import EnvClient
from openenv.types import State

from .models import CallToolAction, EchoAction, EchoObservation, ListToolsAction

__all__ = ["EchoEnv"]


class EchoEnv(EnvClient[EchoAction | CallToolAction | ListToolsAction, EchoObservation, State]):
    """Talks to an echo environment.

    with EchoEnv(base_url="http://localhost:8000") as env:
        env.reset()
        print(env.step(EchoAction(message="hello")).observation.echoed_message)
    """
