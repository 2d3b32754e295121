"""The interface to an agent harness: start, inject tools, send messages, stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from openenv.agents.config import HarnessConfig
from openenv.agents.errors import HarnessCrashedError, HarnessTurnError
from openenv.agents.events import HarnessEvent, HarnessEventType, HarnessResponse
from openenv.tools.types import Tool

__all__ = ["AgenticHarnessAdapter", "build_response"]


class AgenticHarnessAdapter(ABC):
    """The base class of adapters for harnesses, which have an agent loop, tools and memory.

    An episode calls `inject_tools` and `start`, then `send_message_streaming` for each turn, then
    `stop`. The harness keeps the conversation between turns; `stop` and `start` begin a new one.

    Args:
        config: Configuration of the harness.

    Class attributes:
        BUILTIN_TOOL_NAMES: Names of the harness's own tools. If a tool of the environment has one
            of these names, it is injected as ``env_NAME``.
    """

    BUILTIN_TOOL_NAMES: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, config: HarnessConfig) -> None:
        self.config = config

    @abstractmethod
    async def start(self, working_directory: str) -> None:
        """Start the harness in a directory, with an empty conversation.

        Raises:
            HarnessStartupError: The harness could not be started; no process is left running.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End the conversation and all processes. Idempotent; may be called at any time."""

    @abstractmethod
    async def inject_tools(self, tools: list[Tool], bridge_url: str | None = None) -> None:
        """Set the environment's tools, before `start`.

        Args:
            tools: The tools, under the names that the harness sees.
            bridge_url: URL of the MCP server with the tools (Streamable HTTP); None if there are
                no tools.
        """

    @abstractmethod
    def send_message_streaming(self, message: str) -> AsyncIterator[HarnessEvent]:
        """Send a message and yield the events of the turn on arrival, `turn_complete` last.

        Raises:
            HarnessNotRunningError: The harness was not started.
            HarnessBusyError: A turn is running.
            HarnessError: The turn failed, and the harness can no longer be used.
        """

    @abstractmethod
    async def is_alive(self) -> bool:
        """Return whether a message can be sent."""

    async def send_message(self, message: str) -> HarnessResponse:
        """Send a message and wait for the end of the turn.

        Raises:
            HarnessError: See `send_message_streaming`; also if the turn does not complete.
        """
        events: list[HarnessEvent] = []
        async for event in self.send_message_streaming(message):
            events.append(event)
            if event.type is HarnessEventType.TURN_COMPLETE:
                break
        return build_response(events)


def build_response(events: Sequence[HarnessEvent]) -> HarnessResponse:
    """Build the response from the events of a turn.

    If the last event contains no response, the response is the text output of the turn.

    Raises:
        HarnessTurnError: The harness reported that the turn failed.
        HarnessCrashedError: The last event is not `turn_complete`.
    """
    last = events[-1] if events else None
    if last is None or last.type is not HarnessEventType.TURN_COMPLETE:
        if last is not None and last.type is HarnessEventType.ERROR:
            raise HarnessTurnError(str(last.data.get("message") or "it does not say why"))
        told = (
            f"its last event is {last.type.value!r}"
            if last is not None
            else "it reported no events"
        )
        raise HarnessCrashedError(f"the harness ended its turn without 'turn_complete': {told}")
    response = last.data.get("response")
    if response is None:
        said = (e.data.get("text") for e in events if e.type is HarnessEventType.TEXT_OUTPUT)
        response = "".join(text for text in said if isinstance(text, str))
    is_done = last.data.get("done") is True
    return HarnessResponse(response=str(response), events=list(events), done=is_done)
