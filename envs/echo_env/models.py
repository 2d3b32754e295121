"""What goes into the echo environment and what comes out."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from openenv.mcp.types import CallToolAction, ListToolsAction, Tool, ToolError
from openenv.types import Action, Observation

__all__ = ["CallToolAction", "EchoAction", "EchoObservation", "ListToolsAction"]


class EchoAction(Action):
    """Say something."""

    message: str = Field(description="What to repeat.")


class EchoObservation(Observation):
    """What came back: of an `EchoAction` the message, of a tool call its result."""

    echoed_message: str = ""
    message_length: int = 0
    tool_name: str | None = None
    result: Any = None
    error: ToolError | None = None
    tools: list[Tool] | None = None
