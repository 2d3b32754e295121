"""The echo environment itself."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from pydantic import Field

from openenv.errors import Refused
from openenv.mcp import MCPEnvironment, tool
from openenv.types import Observation, State

from ..models import CallToolAction, EchoAction, EchoObservation, ListToolsAction

READY = "Echo environment ready!"
REWARD_PER_CHARACTER = 0.1

TASKS = {
    "train": [{"id": f"say-{word}", "prompt": f"Have {word!r} echoed."} for word in ("a", "hello")],
    "test": [{"id": "say-goodbye", "prompt": "Have 'goodbye' echoed."}],
}

Message = Annotated[str, Field(description="The message to echo back")]


class EchoEnvironment(
    MCPEnvironment[EchoAction | CallToolAction | ListToolsAction, EchoObservation]
):
    """Repeats messages, said as an `EchoAction` or by calling a tool.

    An `EchoAction` is rewarded with 0.1 a character; a tool call is not scored. An episode
    never ends by itself.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True
    NEVER_BLOCKS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id=str(uuid.uuid4()))
        self._shown: str | None = None

    @tool
    def echo_message(self, message: Message) -> str:
        """Echo back the provided message."""
        return message

    @tool
    def echo_with_length(self, message: Message) -> dict[str, Any]:
        """Echo back the message with its length."""
        return {"message": message, "length": len(message)}

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> EchoObservation:
        self._state = State(episode_id=episode_id or str(uuid.uuid4()))
        self._shown = READY
        return EchoObservation(
            echoed_message=READY, reward=0.0, metadata={"status": "ready", "message": READY}
        )

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self._state.step_count += 1
        return super().step(action, timeout_s, **kwargs)

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self._state.step_count += 1
        return await super().step_async(action, timeout_s, **kwargs)

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        if not isinstance(action, EchoAction):
            known = "EchoAction, CallToolAction and ListToolsAction"
            error = f"unknown action {type(action).__name__}; there are {known}"
            return Observation(reward=0.0, metadata={"error": error})
        message = self._shown = action.message
        return EchoObservation(
            echoed_message=message,
            message_length=len(message),
            reward=round(len(message) * REWARD_PER_CHARACTER, 10),
        )

    @property
    def state(self) -> State:
        return self._state

    def render(self) -> str:
        """The latest message."""
        if self._shown is None:
            raise Refused("there is nothing to show before the first reset")
        return self._shown

    def list_splits(self) -> list[str]:
        """The names of the splits."""
        return list(TASKS)

    def list_tasks(self, split: str) -> list[dict[str, str]]:
        """The tasks of a split."""
        return TASKS[split]

    def num_tasks(self, split: str) -> int:
        """How many tasks a split has."""
        return len(TASKS[split])

    def get_task(self, split: str, index: int) -> dict[str, str]:
        """One task of a split."""
        return TASKS[split][index]

    def snapshot(self) -> bytes:
        """Store the episode, which is its state."""
        return self._state.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Go on with a stored episode."""
        self._state = State.model_validate_json(data)
