"""What goes into the echo environment and what comes out."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from openenv.tools.types import CallToolAction, ListToolsAction
from openenv.types import Action, Observation

__all__ = ["CallToolAction", "EchoAction", "EchoObservation", "ListToolsAction"]


class EchoAction(Action):
    """Say something.

    Given a `tool_name` it makes a `CallToolAction`: ``AutoAction.from_env("echo")``, which returns
    this class, has been documented under both names.
    """

    message: str = Field(description="What to repeat.")

    def __new__(cls, **fields: Any) -> Any:
        return CallToolAction(**fields) if "tool_name" in fields else super().__new__(cls)


class EchoObservation(Observation):
    """What came back of an `EchoAction`."""

    echoed_message: str = ""
    message_length: int = 0
