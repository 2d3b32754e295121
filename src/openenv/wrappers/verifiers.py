"""Wrapper for tasksets of verifiers (0.4).

In verifiers a program, the harness, calls a model, and the taskset scores the trace
(https://github.com/PrimeIntellect-ai/verifiers). Here the client of the environment takes the place
of the model: a request of the harness is the observation, and the reply is the action. verifiers
itself does everything else, such as tools, simulated users and rewards.

A rollout is a task on the event loop (`_rollout`) that continues between steps; it stops at each
request to the local endpoint until `step_async` sets the future of the turn. So `reset` and `step`
must be awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import math
import secrets
import uuid
from random import Random
from typing import Annotated, Any

from pydantic import BaseModel, Field

from openenv._internal.packages import needs
from openenv.environment import Environment, scored
from openenv.errors import NotSupported, Refused
from openenv.reward import RewardSpec, Score
from openenv.types import Action, Observation, Private, State
from openenv.wrappers.classes import AdapterError, assign_to_caller, make_preset

with needs("openenv.wrappers.from_verifiers"):
    import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
    from verifiers.v1.configs.agent import agent_config_fields  # pyright: ignore[reportMissingImports]
    from verifiers.v1.utils import loaders  # pyright: ignore[reportMissingImports]

SPLIT = "tasks"  # the only split, since tasksets have none
MODEL = "openenv"
NO_KEY = "OPENENV_VERIFIERS_NO_KEY"  # environment variable of an unused key: the URL is the secret
LARGEST_BODY = 64 * 2**20
LARGEST_HEAD = 2**16


class VerifiersAction(Action):
    """The assistant's message, in the form of OpenAI's chat completions."""

    content: str | None = Field(default=None, description="The text of the message.")
    tool_calls: list[dict[str, Any]] = Field(
        default_factory=list,
        description='Each {"id", "type": "function", "function": {"name", "arguments"}}, where '
        "the arguments are JSON text.",
    )


class VerifiersObservation(Observation):
    """A request to the assistant, in the form of OpenAI's chat completions."""

    messages: list[dict[str, Any]] = Field(
        default_factory=list, description="The conversation so far."
    )
    tools: list[dict[str, Any]] = Field(
        default_factory=list, description="The tools that the assistant may call."
    )
    rewards: dict[str, float] = Field(
        default_factory=dict, description="At the end: the weighted reward of each reward function."
    )
    metrics: dict[str, float] = Field(
        default_factory=dict, description="At the end: the value of each metric."
    )


class VerifiersTask(BaseModel):
    """A task of a taskset.

    Attributes:
        id: The index as text, as accepted by `reset`.
        index: Position in the taskset.
        data: The data of the task in verifiers, including answers.
    """

    id: str
    index: int
    data: Annotated[dict[str, Any], Private]


class PendingRequest:
    """A request to the model that waits for a reply."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def give_up(self) -> None:
        """Fail the request, unless answered."""
        if not self.answer.done():
            self.answer.set_exception(ConnectionError("the rollout was abandoned"))


class ModelEndpoint:
    """The local chat completions endpoint that a harness uses as the model.

    Attributes:
        url: Base URL, which contains a secret.
        turns: The requests received.
    """

    def __init__(self) -> None:
        self.turns: asyncio.Queue[PendingRequest] = asyncio.Queue()
        self.url = ""
        self._secret = secrets.token_urlsafe(24)
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start listening, unless already listening."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", 0, limit=LARGEST_HEAD
            )
            port = self._server.sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}/{self._secret}/v1"

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a single HTTP/1.1 request (RFC 9112) and close the connection."""
        turn = None
        try:
            path, body = await _read_request(reader)
            if path != f"/{self._secret}/v1/chat/completions":
                text = b"only chat completions"
                writer.write(_encode_response("404 Not Found", "text/plain", text))
                return
            turn = PendingRequest(json.loads(body))
            self.turns.put_nowait(turn)
            kind, content = _encode_completion(turn.request, await turn.answer)
            writer.write(_encode_response("200 OK", kind, content))
            await writer.drain()
        except _RequestTooLarge as error:
            status, limit = error.args
            writer.write(_encode_response(status, "text/plain", limit.encode()))
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # the harness disconnected or sent no HTTP; its own error says more
        finally:
            if turn is not None:
                turn.answer.cancel()
            writer.close()


class _RequestTooLarge(Exception):
    """A request beyond the size limits; its arguments are the status line's end and the limit."""


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.LimitOverrunError:
        raise _RequestTooLarge(
            "431 Request Header Fields Too Large",
            f"the head of the request is larger than {LARGEST_HEAD} bytes",
        ) from None
    _, path, _ = head[0].split(" ", 2)
    named = (line.partition(":") for line in head[1:])
    headers = {name.strip().lower(): value.strip() for name, _, value in named}
    length = int(headers.get("content-length", "0"))
    if length > LARGEST_BODY:
        raise _RequestTooLarge(
            "413 Content Too Large",
            f"the request has {length} bytes; at most {LARGEST_BODY} are read",
        )
    return path, await reader.readexactly(length)


def _encode_response(status: str, kind: str, content: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + content


def _encode_completion(request: dict[str, Any], message: dict[str, Any]) -> tuple[str, bytes]:
    """Return the media type and bytes of a chat completion, whole or as a stream."""
    shared = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": 0, "model": request.get("model")}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = {**shared, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    calls = [{"index": i, **one} for i, one in enumerate(message.get("tool_calls", ()))]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": usage},
    ]
    written = [json.dumps({**shared, "object": "chat.completion.chunk", **one}) for one in chunks]
    return "text/event-stream", "".join(f"data: {o}\n\n" for o in [*written, "[DONE]"]).encode()


class VerifiersEnvironment(Environment[VerifiersAction, VerifiersObservation, State]):
    """A taskset of verifiers with the agent as the model; `from_verifiers` makes subclasses.

    An episode is a rollout. Its reward is that of the trace, returned with the last observation.
    The reward's components are the weighted rewards of the task. The episode is unscored if the
    rollout failed, or if a reward is missing.

    Args:
        config: Configuration of a verifiers environment.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("terminal")  # each task names its own components

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self._vf: Any = loaders.load_environment(loaders.resolve_env_config(config))
        self._endpoint = ModelEndpoint()
        self._resources = contextlib.AsyncExitStack()
        self._is_serving = False
        self._rollout: asyncio.Task[Any] | None = None
        self._turn: PendingRequest | None = None
        self._state = State()
        self._listed: list[Any] | None = None  # all tasks, once they were asked for

    # ------------------------------------------------------------------ episodes

    def reset(  # type: ignore[override]
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | None = None,
    ) -> VerifiersObservation:
        """Raise NotSupported, since a rollout must be awaited with `reset_async`."""
        raise _must_be_awaited("reset")

    async def reset_async(  # type: ignore[override]  # a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | None = None,
    ) -> VerifiersObservation:
        """Begin a rollout.

        Args:
            seed: Selects the task if none is given.
            episode_id: Value of `state.episode_id`; by default a new id.
            task: A task, or its id; None draws a task.
        """
        chosen = self._task(self._index(task, seed))
        await self._abandon()
        await self._serve()
        client = vf.EvalClientConfig(base_url=self._endpoint.url, api_key_var=NO_KEY)
        context = vf.ModelContext(model=MODEL, client=client)
        self._rollout = asyncio.create_task(self._vf.run_episode(chosen, context))
        self._state = State(episode_id=episode_id or uuid.uuid4().hex)
        return await self._next()

    def step(self, action: VerifiersAction) -> VerifiersObservation:  # type: ignore[override]
        """Raise NotSupported, since a rollout must be awaited with `step_async`."""
        raise _must_be_awaited("step")

    async def step_async(  # type: ignore[override]
        self, action: VerifiersAction
    ) -> VerifiersObservation:
        """Reply to the pending request of the harness."""
        turn = self._turn
        if turn is None:
            raise Refused("step() was called before reset(), or after done: nothing is asked")
        message = {"role": "assistant", "content": action.content}
        if action.tool_calls:
            message["tool_calls"] = _check_calls(action.tool_calls)  # type: ignore[assignment]
        elif action.content is None:
            raise Refused("content: the assistant says nothing and calls no tool")
        self._state.step_count += 1
        self._turn = None
        if not turn.answer.done():
            turn.answer.set_result(message)
        return await self._next()

    async def _next(self) -> VerifiersObservation:
        """Wait for the next request or the end of the rollout, and return the observation."""
        assert self._rollout is not None
        asked = asyncio.ensure_future(self._endpoint.turns.get())
        try:
            await asyncio.wait([asked, self._rollout], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return _last_observation(self._rollout.result())
            self._turn = asked.result()
        finally:
            asked.cancel()
        request = self._turn.request
        return VerifiersObservation(messages=request["messages"], tools=request.get("tools") or [])

    async def _serve(self) -> None:
        await self._endpoint.open()
        if not self._is_serving:
            await self._resources.enter_async_context(self._vf.serving())
            self._is_serving = True

    async def _abandon(self) -> None:
        rollout, self._rollout = self._rollout, None
        turn, self._turn = self._turn, None
        if rollout is not None:
            rollout.cancel()
            await asyncio.gather(rollout, return_exceptions=True)
        while turn is not None or not self._endpoint.turns.empty():
            (turn or self._endpoint.turns.get_nowait()).give_up()
            turn = None

    @property
    def state(self) -> State:
        return self._state

    async def close_async(self) -> None:
        await self._abandon()
        self._endpoint.close()
        await self._resources.aclose()

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the name of the only split."""
        return [SPLIT]

    def list_tasks(self, split: str) -> list[VerifiersTask]:
        """Return all tasks.

        Raises:
            Refused: The split does not exist, or the taskset is infinite.
        """
        return [_to_task(one) for one in self._all(split)]

    def num_tasks(self, split: str) -> int:
        """Count the tasks.

        Raises:
            Refused: The split does not exist, or the taskset is infinite.
        """
        return len(self._all(split))

    def get_task(self, split: str, index: int) -> VerifiersTask:
        """Return a task.

        Raises:
            IndexError: There is no task at this index.
            Refused: The split does not exist.
        """
        _check_split(split)
        return _to_task(self._at(index))

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[VerifiersTask]:
        """Return the tasks from `start` up to but excluding `stop`, as a slice does."""
        return [_to_task(one) for one in self._all(split)[start:stop]]

    def _all(self, split: str = SPLIT) -> list[Any]:
        _check_split(split)
        if not self._vf.taskset.bounded:
            raise Refused("the taskset has no end; ask for a task by its index")
        if self._listed is None:
            self._listed = list(self._vf.taskset)
        return self._listed

    def _index(self, task: str | dict[str, Any] | None, seed: int | None) -> int:
        if task is None:
            count = len(self._all()) if self._vf.taskset.bounded else 2**16
            return Random(seed).randrange(count)  # nosec B311  # which task, no secret
        text = str(task.get("id")) if isinstance(task, dict) else task
        if not text.isdecimal():
            raise Refused(f"task: expected an index, such as '3', got {text!r}")
        return int(text)

    def _task(self, index: int) -> Any:
        try:
            return self._at(index)
        except IndexError as error:
            raise Refused(f"task: {error}") from None

    def _at(self, index: int) -> Any:
        if self._vf.taskset.bounded:
            listed = self._all()
            if -len(listed) <= index < len(listed):
                return listed[index]
            raise IndexError(f"there are {len(listed)} tasks, and none at {index}")
        if index >= 0:
            for task in itertools.islice(self._vf.taskset, index, index + 1):
                return task
        raise IndexError(f"there is no task at {index}")


def _must_be_awaited(method: str) -> NotSupported:
    return NotSupported(
        f"a rollout of verifiers goes on by itself, on an event loop: await {method}_async",
        feature=method,
    )


def _check_split(split: str) -> None:
    if split != SPLIT:
        raise Refused(f"split: expected {SPLIT!r}, got {split!r}")


def _to_task(task: Any) -> VerifiersTask:
    index = task.data.idx
    return VerifiersTask(id=str(index), index=index, data=task.data.model_dump(mode="json"))


def _check_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for number, one in enumerate(calls):
        function = one.get("function")
        if not isinstance(function, dict) or not {"name", "arguments"} <= set(function):
            raise Refused(
                f"tool_calls[{number}]: expected function with name and arguments, got {one!r:.200}"
            )
    return [{"id": f"call_{i}", "type": "function", **one} for i, one in enumerate(calls)]


def _last_observation(episode: Any) -> VerifiersObservation:
    traces = list(episode.traces)
    errors = [error for one in (*traces, episode) for error in one.errors]
    if errors or not traces:
        why = "; ".join(f"{one.type}: {one.message}" for one in errors) or "there is no trace"
        return scored(VerifiersObservation(done=True), Score(unscored=f"the rollout failed: {why}"))
    (trace,) = traces
    given = {name: one.value for name, one in trace.rewards.items() if one is not None}
    missing = [name for name, one in trace.rewards.items() if one is None]
    observation = VerifiersObservation(
        messages=[one.model_dump(mode="json", exclude_none=True) for one in trace.messages],
        rewards=given,
        metrics={name: float(one) for name, one in trace.metrics.items() if one is not None},
        done=True,
        truncated=trace.is_truncated,
    )
    total = math.fsum(given.values())
    score = (
        Score(total, given) if math.isfinite(total) else Score(unscored=f"the reward is {total}")
    )
    if missing or not given:
        why = f"no reward of {', '.join(missing)}" if missing else "the task declares no rewards"
        score = Score(unscored=why)
    return scored(observation, score)


def from_verifiers(
    taskset: str, /, *, harness: str = "null", runtime: str = "subprocess", **config: Any
) -> type[Any]:
    """Make an environment class from a taskset of verifiers.

    Args:
        taskset: Id of the taskset: a module, or an installed package.
        harness: The harness: ``null`` chats, and calls the task's own tools. A harness that runs
            code, such as ``bash``, lets the agent run it in `runtime`.
        runtime: Where the harness runs. ``subprocess``: on this machine, without isolation.
        **config: Options of the taskset, by their names in verifiers.

    Raises:
        AdapterError: The taskset or an option does not exist, or the taskset has several agents.
        MissingPackage: verifiers is not installed.
    """
    seat = {"harness": {"id": harness}, "runtime": {"type": runtime}}
    described = {"taskset": {"id": taskset, **config}, "agent": seat}
    try:
        resolved = loaders.resolve_env_config(described)
        environment = loaders.load_environment(resolved)
    except (ModuleNotFoundError, AttributeError, TypeError, ValueError) as error:
        raise AdapterError(f"verifiers:{taskset}: {error}") from error
    agents = list(agent_config_fields(environment.config))
    if agents != ["agent"]:
        raise AdapterError(f"verifiers:{taskset} has the agents {', '.join(agents)}; expected one")
    made_by = functools.partial(from_verifiers, taskset, harness=harness, runtime=runtime, **config)
    made = make_preset(VerifiersEnvironment, taskset, made_by, {"config": described})
    return assign_to_caller(made)  # type: ignore[no-any-return]
