"""Actions and observations of the echo environment."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from openenv.tools.types import CallToolAction, ListToolsAction
from openenv.types import Action, Observation

__all__ = ["CallToolAction", "EchoAction", "EchoObservation", "ListToolsAction"]


class EchoAction(Action):
    """A message to repeat.

    If a `tool_name` is given, the constructor returns a `CallToolAction`. The public documentation
    shows both uses of ``AutoAction.from_env("echo")``, which returns this class.
    """

    message: str = Field(description="What to repeat.")

    def __new__(cls, **fields: Any) -> Any:
        return CallToolAction(**fields) if "tool_name" in fields else super().__new__(cls)


class EchoObservation(Observation):
    """The answer to an `EchoAction`."""

    echoed_message: str = ""
    message_length: int = 0
