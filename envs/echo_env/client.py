"""The client of the echo environment."""

from __future__ import annotations

from openenv.client import MCPToolClient

from .models import CallToolAction, EchoAction, EchoObservation, ListToolsAction

__all__ = ["EchoEnv"]


class EchoEnv(MCPToolClient[EchoAction | CallToolAction | ListToolsAction, EchoObservation]):
    """A client of an echo environment.

    with EchoEnv(base_url="http://localhost:8000") as env:
        env.reset()
        print(env.step(EchoAction(message="hello")).observation.echoed_message)
        print(env.call_tool("echo_message", message="hello"))
    """
