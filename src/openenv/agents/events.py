"""What happens in a turn of an agent harness, as data."""

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
    """What an event tells of, and the members of its `data`.

    ==================  =========================================================================
    ``llm_request``     the model is asked: `model`, `messages`
    ``llm_response``    it has answered: `content`, `usage`
    ``llm_chunk``       a piece of its answer: `text`
    ``tool_call``       a tool is called: `name`, `arguments`, `id`
    ``tool_result``     what it gave: `name`, `id`, `result`, `is_error`
    ``text_output``     the harness says something: `text`
    ``error``           the turn has failed: `message`, `recoverable`
    ``turn_complete``   the turn is over: `response`, and `done` where the agent ends the episode
    ==================  =========================================================================

    A call of one of the environment's own tools is told of by the environment too, with `source`
    ``"environment"``: what was called, whatever the harness says about it.
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
    """One thing that happened; `timestamp` is in seconds since the epoch."""

    type: HarnessEventType
    timestamp: float = Field(default_factory=time.time)
    data: dict[str, Any] = Field(default_factory=dict)

    def without_secrets(self) -> HarnessEvent:
        """It with the secrets in its texts hidden."""
        return self.model_copy(update={"data": redacted(self.data)})


class HarnessResponse(BaseModel):
    """What a turn came to: what the agent answered, all that happened, whether it is finished."""

    response: str
    events: list[HarnessEvent] = Field(default_factory=list)
    done: bool = False


class HarnessClientMessage(BaseModel):
    """What a client of `WS /harness` sends: one turn of the conversation."""

    type: Literal["message"]
    content: str


class HarnessProtocolError(BaseModel):
    """What a client of `WS /harness` is sent for a frame that is no `HarnessClientMessage`."""

    type: Literal["protocol_error"] = "protocol_error"
    data: dict[str, Any]


OnEvent = Callable[[HarnessEvent], None]


class Listener:
    """Who hears the events of a turn as they happen; in another process that is nobody."""

    def __init__(self, hear: OnEvent | None = None) -> None:
        self._hear = hear

    def __call__(self, event: HarnessEvent) -> None:
        if self._hear is not None:
            self._hear(event)

    def __reduce__(self) -> tuple[type[Listener], tuple[()]]:
        return Listener, ()


def events_to_metadata(events: Iterable[HarnessEvent]) -> list[dict[str, Any]]:
    """Events in the form of JSON, as the metadata of an observation hold them."""
    return [event.model_dump(mode="json") for event in events]
