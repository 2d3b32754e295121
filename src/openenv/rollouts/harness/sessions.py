"""Episodes as a harness sees them: first messages, tools, and a verdict at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypedDict, TypeVar, runtime_checkable

from pydantic import BaseModel

from openenv.errors import OpenEnvError
from openenv.rollouts.harness.results import Message, ToolResult, VerifyResult
from openenv.rollouts.harness.training import TrainingTrace
from openenv.tools.types import RESERVED_TOOL_NAMES, Tool
from openenv.types import StepResult

ActionBuilder = Callable[[str, dict[str, Any]], Any]
InitialMessages = Callable[[StepResult[Any], Any], list[Message]]
ResultBuilder = Callable[[str, dict[str, Any], StepResult[Any], Any], ToolResult]
VerifyBuilder = Callable[[list[Message], Any, "StepResult[Any] | None", Any], VerifyResult]


class UnknownSessionTool(OpenEnvError, KeyError):
    """A session has no tool with this name."""

    def __str__(self) -> str:
        return str(self.args[0])


class ToolCallRejected(OpenEnvError, ValueError):
    """The arguments of a call do not fit the tool; the environment was not called."""


class TraceEntry(TypedDict, total=False):
    """A captured model call, as trainers read it.

    `loss_mask` covers prompt and completion; the log-probabilities cover only the completion.
    """

    request: dict[str, Any]
    response: dict[str, Any]
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    completion_tokens: list[str]
    per_token_logps: list[float]
    loss_mask: list[int]
    reward: float | None
    metadata: dict[str, Any]


class ResourceSession(ABC):
    """An episode that a harness drives by calling tools."""

    @abstractmethod
    def initial_messages(self) -> list[Message]:
        """Return the conversation before the model's first turn."""

    @abstractmethod
    def list_tools(self) -> list[Tool]:
        """Return the tools that the model may call."""

    @abstractmethod
    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Carry out a tool call.

        Raises:
            KeyError: There is no tool with this name.
            ValueError: The tool does not accept the arguments.
        """

    @abstractmethod
    def verify(self, transcript: list[Message], final_state: Any | None = None) -> VerifyResult:
        """Return the verdict on the whole rollout."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources of the session. Idempotent."""


SessionT = TypeVar("SessionT", bound=ResourceSession)


class ResourceSessionFactory(ABC, Generic[SessionT]):
    """Begins sessions, one for each rollout."""

    @abstractmethod
    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> SessionT:
        """Begin a session for a task."""


@runtime_checkable
class LoopOwningSession(Protocol):
    """A session whose agent runs the loop and calls the model."""

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Wait until the agent has ended; return its exit status.

        Raises:
            TimeoutError: The agent did not end within `timeout_s` seconds.
        """
        ...

    def fetch_proxy_trace(self) -> list[TraceEntry]:
        """Return the captured model calls."""
        ...


@runtime_checkable
class TrainableSession(Protocol):
    """A session whose agent runs the loop, with a capture that can be trained on."""

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Wait until the agent has ended; return its exit status.

        Raises:
            TimeoutError: The agent did not end within `timeout_s` seconds.
        """
        ...

    def fetch_training_trace(self) -> TrainingTrace:
        """Return the model's calls with exact tokens, log-probabilities and masks.

        Raises:
            ValueError: The capture is not fit for training.
        """
        ...


class StepEnvSessionAdapter(ResourceSession):
    """A session of a stepped environment: each tool call is a step.

    The environment is reset at once. The session owns the client: it is closed together with the
    session, and also if that first reset fails.

    Args:
        client: A client of the environment; an asynchronous one is used through its `sync()`.
        task: The task, passed on to `initial_messages_builder`.
        seed: Passed to `reset` unless None.
        episode_id: Passed to `reset` unless None.
        tool_specs: The tools that the model may call.
        action_builder: Builds the action of a call. A KeyError, TypeError or ValueError that it
            raises counts as the model's mistake.
        initial_messages_builder: Builds the first messages from the result of `reset`.
        tool_result_builder: Builds a call's result from ``(name, arguments, result, state)``.
            Default: its data are name, arguments, observation, reward and done.
        verify_builder: Builds the verdict from ``(transcript, final_state, last_result, state)``.
            Default: the last reward and `done`.
        reset_kwargs: Further arguments of `reset`.

    Raises:
        ValueError: A tool has a reserved name.
    """

    def __init__(
        self,
        client: Any,
        *,
        task: Any = None,
        seed: int | None = None,
        episode_id: str | None = None,
        tool_specs: Sequence[Tool],
        action_builder: ActionBuilder,
        initial_messages_builder: InitialMessages,
        tool_result_builder: ResultBuilder | None = None,
        verify_builder: VerifyBuilder | None = None,
        reset_kwargs: dict[str, Any] | None = None,
    ) -> None:
        reserved = sorted({tool.name for tool in tool_specs} & RESERVED_TOOL_NAMES)
        if reserved:
            names = ", ".join(reserved)
            raise ValueError(f"tool_specs: {names}: reserved for who drives the episode")
        self._client = client.sync() if callable(getattr(client, "sync", None)) else client
        self._tools = {tool.name: tool for tool in tool_specs}
        self._action = action_builder
        self._tool_result = tool_result_builder or _tool_result
        self._verify = verify_builder or _verify
        chosen = {"seed": seed, "episode_id": episode_id}
        given = {name: value for name, value in chosen.items() if value is not None}
        try:
            self._last: StepResult[Any] = self._client.reset(**{**(reset_kwargs or {}), **given})
            self._state = self._read_state()
            self._messages = initial_messages_builder(self._last, task)
        except BaseException:  # the caller gets no session, so only this code can close the client
            self._client.close()
            raise

    def initial_messages(self) -> list[Message]:
        return [dict(message) for message in self._messages]

    def list_tools(self) -> list[Tool]:
        return list(self._tools.values())

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name in RESERVED_TOOL_NAMES:
            raise UnknownSessionTool(f"{name} is reserved for who drives the episode")
        if name not in self._tools:
            raise UnknownSessionTool(
                f"Unknown tool: {name}; there is {', '.join(self._tools) or 'none'}"
            )
        try:
            action = self._action(name, arguments)
        except (KeyError, TypeError, ValueError) as error:
            raise ToolCallRejected(f"{name}: {type(error).__name__}: {error}") from error
        self._last = self._client.step(action)
        self._state = self._read_state()
        return self._tool_result(name, arguments, self._last, self._state)

    def verify(self, transcript: list[Message], final_state: Any | None = None) -> VerifyResult:
        """Return the verdict; `final_state` takes precedence over the state read last."""
        return self._verify(transcript, final_state, self._last, self._state)

    def close(self) -> None:
        self._client.close()

    def _read_state(self) -> Any:
        state = self._client.state()
        return state.model_dump() if isinstance(state, BaseModel) else state


def _tool_result(
    name: str, arguments: dict[str, Any], result: StepResult[Any], state: Any
) -> ToolResult:
    data = {
        "tool_name": name,
        "arguments": arguments,
        "observation": result.observation,
        "reward": result.reward,
        "done": result.done,
    }
    metadata = {"reward": result.reward, "state": state}
    return ToolResult(data=data, done=result.done, metadata=metadata)


def _verify(
    transcript: list[Message], final_state: Any, last: StepResult[Any] | None, state: Any
) -> VerifyResult:
    steps = state.get("step_count") if isinstance(state, dict) else None
    return VerifyResult(
        env_reward=None if last is None else last.reward,
        done=last is not None and last.done,
        metrics={} if steps is None else {"step_count": steps},
        artifacts={
            "final_state": state if final_state is None else final_state,
            "transcript_length": len(transcript),
        },
    )
