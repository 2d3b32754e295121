"""What drives one agent harness: starts it, gives it tools, sends it messages, ends it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from openenv.agents.config import HarnessConfig
from openenv.agents.errors import HarnessCrashedError, HarnessTurnError
from openenv.agents.events import HarnessEvent, HarnessEventType, HarnessResponse
from openenv.tools.types import Tool

__all__ = ["AgenticHarnessAdapter", "response_of"]


class AgenticHarnessAdapter(ABC):
    """Drives one harness that has a loop, tools and a memory of its own.

    An episode goes `inject_tools`, `start`, then `send_message_streaming` once a turn, then `stop`.
    The harness keeps the conversation from turn to turn; after `stop` and `start` it is a new one.

    Args:
        config: How it is run.

    Class attributes:
        BUILTIN_TOOL_NAMES: The tools that the harness has by itself. A tool of the environment that
            is called so is injected as ``env_NAME``.
    """

    BUILTIN_TOOL_NAMES: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, config: HarnessConfig) -> None:
        self.config = config

    @abstractmethod
    async def start(self, working_directory: str) -> None:
        """Begin a conversation, in that directory.

        Raises:
            HarnessStartupError: It could not be begun; nothing of it is left.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End the conversation and every process of it. It may be called at any time, and again."""

    @abstractmethod
    async def inject_tools(self, tools: list[Tool], bridge_url: str | None = None) -> None:
        """Note the environment's tools, before `start`.

        Args:
            tools: What they are, by the names that the harness is to know them by.
            bridge_url: Where they are served by MCP (Streamable HTTP); None where there are none.
        """

    @abstractmethod
    def send_message_streaming(self, message: str) -> AsyncIterator[HarnessEvent]:
        """Send a message; the events of the turn as they happen, the last one `turn_complete`.

        Raises:
            HarnessNotRunningError: It was not started.
            HarnessBusyError: A turn is running.
            HarnessError: The turn has failed, and the harness is of no more use.
        """

    @abstractmethod
    async def is_alive(self) -> bool:
        """Whether a message can be sent."""

    async def send_message(self, message: str) -> HarnessResponse:
        """Send a message, and wait for the end of the turn.

        Raises:
            HarnessError: As `send_message_streaming`; also where the turn has no end.
        """
        events: list[HarnessEvent] = []
        async for event in self.send_message_streaming(message):
            events.append(event)
            if event.type is HarnessEventType.TURN_COMPLETE:
                break
        return response_of(events)


def response_of(events: Sequence[HarnessEvent]) -> HarnessResponse:
    """What the events of a turn came to. Where the last does not say, the response is what was
    said in the turn.

    Raises:
        HarnessTurnError: The harness says that the turn has failed.
        HarnessCrashedError: They do not end with `turn_complete`.
    """
    last = events[-1] if events else None
    if last is None or last.type is not HarnessEventType.TURN_COMPLETE:
        if last is not None and last.type is HarnessEventType.ERROR:
            raise HarnessTurnError(str(last.data.get("message") or "it does not say why"))
        told = (
            f"its last event is {last.type.value!r}" if last is not None else "it told of nothing"
        )
        raise HarnessCrashedError(f"the harness ended its turn without 'turn_complete': {told}")
    response = last.data.get("response")
    if response is None:
        said = (e.data.get("text") for e in events if e.type is HarnessEventType.TEXT_OUTPUT)
        response = "".join(text for text in said if isinstance(text, str))
    is_done = last.data.get("done") is True
    return HarnessResponse(response=str(response), events=list(events), done=is_done)
