"""The echo environment: it repeats messages, and its tasks ask for a word."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from openenv.environment import scored, termination, transition
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score
from openenv.tools import MCPEnvironment, tool
from openenv.types import Observation, State

from ..models import CallToolAction, EchoAction, EchoObservation, ListToolsAction

READY = "Echo environment ready!"
REWARD_PER_CHARACTER = 0.1
MAX_PAID_CHARACTERS = 1_000_000
"""The number of characters of a message that are paid. Further ones earn nothing."""

WORDS = {"train": ["a", "hello"], "test": ["goodbye"]}
TASKS = {
    split: [{"id": f"say-{word}", "prompt": f"Have {word!r} echoed."} for word in words]
    for split, words in WORDS.items()
}
WORD_OF = {f"say-{word}": word for words in WORDS.values() for word in words}

Seen = TypeVar("Seen", bound=Observation)

LENGTH_REWARD = RewardSpec(
    "per_step", (0.0, MAX_PAID_CHARACTERS * REWARD_PER_CHARACTER), ("length",)
)
"""The rewards of an episode without a task."""

TASK_REWARD = RewardSpec("per_step", (0.0, 1.0), ("said",))
"""The rewards of an episode with a task."""

Message = Annotated[str, Field(description="The message to echo back")]


class EchoEnvironment(
    MCPEnvironment[EchoAction | CallToolAction | ListToolsAction, EchoObservation]
):
    """An environment that repeats messages, sent as an `EchoAction` or by a tool call.

    An `EchoAction` earns 0.1 per character. A tool call is not scored. An episode never ends by
    itself.

    A task (`reset(task=...)`) asks for a word. Sending the word in either way earns 1 and ends the
    episode. Nothing else earns anything.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True
    NEVER_BLOCKS = True
    # Episodes with and without a task have no range in common, so `reset` declares each one's own.
    REWARD = RewardSpec("per_step", components=("length", "said"))

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id=str(uuid.uuid4()))
        self._task: str | None = None
        self._is_said = False
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
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> EchoObservation:
        """Start an episode, with or without a task.

        Raises:
            Refused: The task is unknown.
        """
        self._task = None if task is None else _find_task_id(task)
        self._is_said = False
        self.REWARD = LENGTH_REWARD if self._task is None else TASK_REWARD  # type: ignore[misc]
        self._state = State(episode_id=episode_id or str(uuid.uuid4()))
        self._shown = READY if self._task is None else f"Say {WORD_OF[self._task]!r}."
        return EchoObservation(
            echoed_message=self._shown, reward=0.0, metadata={"status": "ready", "message": READY}
        )

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self._count()
        return super().step(action, timeout_s, **kwargs)

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self._count()
        return await super().step_async(action, timeout_s, **kwargs)

    def _count(self) -> None:
        if self._is_said:
            raise Refused("the word is said, and the episode over; call reset()")
        self._state.step_count += 1

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        if not isinstance(action, EchoAction):
            known = "EchoAction, CallToolAction and ListToolsAction"
            error = f"unknown action {type(action).__name__}; there are {known}"
            return scored(Observation(), Score(unscored=error))
        message = self._shown = action.message
        seen = EchoObservation(echoed_message=message, message_length=len(message))
        if self._task is not None:
            return self._score_word(seen, message == WORD_OF[self._task])
        reward = round(min(len(message), MAX_PAID_CHARACTERS) * REWARD_PER_CHARACTER, 10)
        return scored(seen, Score(reward, {"length": reward}))

    async def _score_call(self, action: Any, observation: Any) -> Any:
        """Score the message of a tool call if the task asks for a word.

        Agents that act by tools have no other way to send it.
        """
        if self._task is None or self._is_said or observation.error is not None:
            return observation
        return self._score_word(observation, action.arguments.get("message") == WORD_OF[self._task])

    def _score_word(self, seen: Seen, is_said: bool) -> Seen:
        self._is_said = is_said
        score = Score(float(is_said), {"said": float(is_said)})
        return termination(seen, score) if is_said else transition(seen, score)

    @property
    def state(self) -> State:
        return self._state

    def render(self) -> str:
        """Return the latest message."""
        if self._shown is None:
            raise Refused("there is nothing to show before the first reset")
        return self._shown

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return list(TASKS)

    def list_tasks(self, split: str) -> list[dict[str, str]]:
        """Return the tasks of a split."""
        return TASKS[split]

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return len(TASKS[split])

    def get_task(self, split: str, index: int) -> dict[str, str]:
        """Return one task of a split."""
        return TASKS[split][index]

    def snapshot(self) -> bytes:
        """Store the episode: its state and its task."""
        stored = _Stored(state=self._state, task=self._task, is_said=self._is_said)
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored episode."""
        stored = _Stored.model_validate_json(data)
        self._task = None if stored.task is None else _find_task_id(stored.task)
        self._state, self._is_said = stored.state, stored.is_said


class _Stored(BaseModel):
    """A stored episode."""

    model_config = ConfigDict(extra="forbid")

    state: State
    task: str | None
    is_said: bool


def _find_task_id(task: str | dict[str, Any]) -> str:
    name = task.get("id") if isinstance(task, dict) else task
    if name not in WORD_OF:
        raise Refused(f"there is no task {name!r:.80}; there are {', '.join(WORD_OF)}")
    return str(name)
