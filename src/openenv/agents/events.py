"""Events and messages of a harness's turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Literal

from pydantic import BaseModel, Field

from openenv._internal.redaction import redacted

__all__ = [
    "HarnessClientMessage",
    "HarnessEvent",
    "HarnessEventType",
    "HarnessProtocolError",
    "HarnessResponse",
    "Listener",
    "OnEvent",
    "events_to_metadata",
]


class HarnessEventType(str, Enum):
    """The types of events, with the members of `data`.

    ==================  =========================================================================
    ``llm_request``     a request to the model: `model`, `messages`
    ``llm_response``    the model's answer: `content`, `usage`
    ``llm_chunk``       a piece of the answer: `text`
    ``tool_call``       a tool is called: `name`, `arguments`, `id`
    ``tool_result``     the tool's result: `name`, `id`, `result`, `is_error`
    ``text_output``     text output of the harness: `text`
    ``error``           the turn has failed: `message`, `recoverable`
    ``turn_complete``   the turn is over: `response`, and `done` if the agent ends the episode
    ==================  =========================================================================

    A call of the environment's own tools is also reported by the environment, with `source`
    ``"environment"``: the actual call, even if the harness reports another.
    """

    LLM_REQUEST = "llm_request"
    LLM_RESPONSE = "llm_response"
    LLM_CHUNK = "llm_chunk"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    TEXT_OUTPUT = "text_output"
    ERROR = "error"
    TURN_COMPLETE = "turn_complete"


class HarnessEvent(BaseModel):
    """An event of a turn; `timestamp` is in seconds since the epoch."""

    type: HarnessEventType
    timestamp: float = Field(default_factory=time.time)
    data: dict[str, Any] = Field(default_factory=dict)

    def without_secrets(self) -> HarnessEvent:
        """Return a copy in which secrets are hidden."""
        return self.model_copy(update={"data": redacted(self.data)})


class HarnessResponse(BaseModel):
    """The result of a turn: the agent's response, all events, and whether the episode is done."""

    response: str
    events: list[HarnessEvent] = Field(default_factory=list)
    done: bool = False


class HarnessClientMessage(BaseModel):
    """A message from a client of `WS /harness`: a turn of the conversation."""

    type: Literal["message"]
    content: str


class HarnessProtocolError(BaseModel):
    """The answer of `WS /harness` to a frame that is no `HarnessClientMessage`."""

    type: Literal["protocol_error"] = "protocol_error"
    data: dict[str, Any]


OnEvent = Callable[[HarnessEvent], None]


class Listener:
    """A callback for the events of a turn, which pickles as a callback that does nothing."""

    def __init__(self, hear: OnEvent | None = None) -> None:
        self._hear = hear

    def __call__(self, event: HarnessEvent) -> None:
        if self._hear is not None:
            self._hear(event)

    def __reduce__(self) -> tuple[type[Listener], tuple[()]]:
        return Listener, ()


def events_to_metadata(events: Iterable[HarnessEvent]) -> list[dict[str, Any]]:
    """Convert events to JSON values for an observation's metadata."""
    return [event.model_dump(mode="json") for event in events]
