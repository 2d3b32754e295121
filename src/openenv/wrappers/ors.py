"""Wrapper for environments of servers that implement the Open Reward Standard (ORS).

ORS: sessions, tasks and tools over HTTP, tool results as server-sent events
(https://openrewardstandard.io; the server of the package `openreward` is the reference). Each
episode of a session has an ORS session of its own.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import functools
import importlib
import json
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel

from openenv._internal.json import read_json
from openenv._internal.net.http import FAILURES, MAX_BYTES, HTTPClient, StreamedAnswer, ask
from openenv._internal.packages import needs
from openenv._internal.redaction import redact
from openenv.environment import scored
from openenv.errors import Refused
from openenv.tools.environment import MCPEnvironment
from openenv.tools.functions import InvalidToolArguments, UnknownTool
from openenv.tools.results import to_dump
from openenv.tools.types import CallToolAction, CallToolObservation
from openenv.types import Action, Observation, Private, State
from openenv.wrappers.classes import (
    AdapterError,
    assign_to_caller,
    make_preset,
    suggest_name,
    to_score,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["OrsEnvironment", "OrsTask", "from_ors"]

CONNECT_TIMEOUT_S = 10.0
PING_INTERVAL_S = 30.0  # the reference server drops a session after 900 s of silence
STARTING = "X-Backend-State"
SILENCE_S = 60.0  # servers send at least keep-alives within this time
START_TIMEOUT_S = 600.0
CLOSE_TIMEOUT_S = 5.0


class OrsTask(BaseModel):
    """A task of an ORS server.

    Attributes:
        id: ``split/index``, as accepted by `reset`.
        split: Name of the split.
        index: Position in the split.
        spec: The server's data of the task, which may contain the answer.
    """

    id: str
    split: str
    index: int
    spec: Annotated[Any, Private]


class OrsAddress(NamedTuple):
    """The address of an environment on an ORS server."""

    url: str  # URL of the server
    environment: str  # name of the environment
    headers: Mapping[str, str]  # headers of every request


class OrsOutcome(NamedTuple):
    """The reward, end and metadata that a tool call returned besides its content."""

    reward: float | None
    finished: bool
    metadata: Any


class OrsClient:
    """A client of an environment on an ORS server, which holds the session of an episode.

    It provides the tools in the form that `MCPEnvironment` expects.

    Attributes:
        outcome: The reward, end and metadata of the last call; None if it failed.
    """

    def __init__(self, place: OrsAddress) -> None:
        self.outcome: OrsOutcome | None = None
        self._place = place
        self._http = HTTPClient(place.url, timeout_s=SILENCE_S, follows_redirects=True)
        self._session: str | None = None
        self._pinging: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ HTTP

    async def ask(self, method: str, params: Mapping[str, Any]) -> None:
        """Return None, since ORS has no resources, prompts or completions."""
        return None

    async def _request_json(
        self, method: str, path: str, body: Any = None, *, session: str | None = None
    ) -> Any:
        """Send a request and return the JSON answer, waiting while the environment starts.

        Raises:
            Refused: The server answered with an error.
            ConnectionError: The server did not answer.
        """
        until = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while True:
            async with self._request(method, path, body, session or self._session) as answer:
                content = await answer.read(MAX_BYTES + 1)
            is_starting = answer.status == 503 and STARTING in answer.headers
            if not is_starting or asyncio.get_running_loop().time() > until:
                _check(answer.status, content, path)
                if len(content) > MAX_BYTES:
                    raise ConnectionError(f"the answer of {path} has over {MAX_BYTES} bytes")
                return read_json(content)
            await asyncio.sleep(float(answer.headers.get("retry-after", "1")))

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, body: Any, session: str | None
    ) -> AsyncIterator[StreamedAnswer]:
        headers = {"content-type": "application/json", **self._place.headers}
        if session is not None:
            headers["X-Session-ID"] = session
        content = b"" if body is None else json.dumps(body).encode()
        try:
            async with self._http.request(method, path, headers, content) as answer:
                yield answer
        except OSError as error:
            where = redact(self._place.url)
            raise ConnectionError(f"the ORS server at {where} does not answer: {error}") from error

    async def _events(self, path: str, body: Any) -> AsyncGenerator[tuple[str, str], None]:
        """Yield the events of a stream as pairs of event and data."""
        async with self._request("POST", path, body, self._session) as answer:
            if answer.status >= 300:
                _check(answer.status, await answer.read(MAX_BYTES), path)
            async for event in _parse_events(answer):
                yield event

    def _path(self, route: str) -> str:
        return f"/{self._place.environment}/{route}"

    # ------------------------------------------------------------------ tasks

    async def splits(self) -> Any:
        """Return the splits, each with a name and a type."""
        return await self._request_json("GET", self._path("splits"))

    async def tasks(self, route: str, **body: Any) -> Any:
        """Send a request to a task route and return the answer."""
        return await self._request_json("POST", self._path(route), body)

    # ------------------------------------------------------------------ a session

    async def begin(self, **chosen: Any) -> list[dict[str, Any]]:
        """Open a session for a task, close the previous session, and return the task's prompt.

        The prompt has the form of MCP content blocks. If opening fails, the previous session
        continues.
        """
        before, self._session, self._pinging = (self._session, self._pinging), None, None
        try:
            blocks = await self._open(chosen)
        except BaseException:
            await self._close(self._session, self._pinging)
            self._session, self._pinging = before
            raise
        await self._close(*before)
        return [_to_mcp_block(one) for one in blocks]

    async def _open(self, chosen: Mapping[str, Any]) -> Any:
        async with aclosing(self._events("/create_session", {})) as events:
            async for event, data in events:
                if event == "task_id":
                    self._session = data
        if self._session is None:
            raise Refused("the ORS server opened no session: it sent no task_id")
        named = {"env_name": self._place.environment}
        await self._request_json("POST", "/create", {**named, **chosen})
        self._pinging = asyncio.create_task(self._ping())
        return await self._request_json("GET", self._path("prompt"))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_INTERVAL_S)
            with contextlib.suppress(Refused, ConnectionError):  # the next call reports it
                await self._request_json("POST", "/ping")

    async def _close(self, session: str | None, pinging: asyncio.Task[None] | None) -> None:
        """Close a session, ignoring a server that does not answer."""
        if pinging is not None:
            pinging.cancel()
        if session is None:
            return
        with contextlib.suppress(Refused, ConnectionError, asyncio.TimeoutError):
            for path in ("/delete", "/delete_session"):
                await asyncio.wait_for(
                    self._request_json("POST", path, session=session), CLOSE_TIMEOUT_S
                )

    async def aclose(self) -> None:
        """Close the session and the connections."""
        session, self._session = self._session, None
        await self._close(session, self._pinging)
        await self._http.aclose()

    # ------------------------------------------------------------------ tools

    async def tools(self) -> list[dict[str, Any]]:
        """List the tools of the session, or of the environment before a session exists.

        The list includes the tool that ORS uses for an agent's final message, since agents here act
        only through tools.
        """
        route = "tools" if self._session is None else "task_tools"
        listed = await self._request_json("GET", self._path(route))
        found = [
            {
                "name": one["name"],
                "description": one.get("description") or "",
                "inputSchema": one.get("input_schema") or {"type": "object", "properties": {}},
            }
            for one in listed["tools"]
        ]
        if (last := listed.get("terminal_tool")) is not None:
            names = [] if last.get("arg") is None else [last["arg"]]
            properties = {name: {"type": "string"} for name in names}
            schema = {"type": "object", "properties": properties, "required": names}
            text = f"{last.get('description') or ''} It ends the episode.".strip()
            found.append({"name": last["name"], "description": text, "inputSchema": schema})
        return found

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: Any = None
    ) -> dict[str, Any]:
        """Call a tool and return the result in MCP's form.

        Raises:
            UnknownTool: There is no tool of that name.
            InvalidToolArguments: The tool does not accept these arguments.
            Refused: The tool failed.
        """
        self.outcome = None
        if self._session is None:
            raise Refused("a tool was called before reset(): there is no episode")
        text = ""
        body = {"name": name, "input": dict(arguments)}
        async with aclosing(self._events(self._path("call"), body)) as events:
            async for event, data in events:
                if event == "error":
                    raise Refused(f"the tool {name} failed: {redact(data)}")
                if event in ("chunk", "end"):
                    text += data
        try:
            answer = json.loads(text)
        except ValueError:
            raise ConnectionError(f"the answer of the tool {name} broke off") from None
        if not answer["ok"]:
            kinds = {"not_found": UnknownTool, "input_validation": InvalidToolArguments}
            kind = kinds.get(str(answer.get("reason")), Refused)
            raise kind(redact(str(answer.get("error"))))
        output = answer["output"]
        self.outcome = OrsOutcome(
            output.get("reward"), bool(output.get("finished")), output.get("metadata")
        )
        return {"content": [_to_mcp_block(one) for one in output["blocks"]], "isError": False}


def _check(status: int, content: bytes, path: str) -> None:
    if status < 300:
        return
    try:
        detail = read_json(content)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = content.decode(errors="replace") or f"status {status}"
    raise Refused(f"the ORS server refused {path}: {redact(str(detail))[:500]}")


async def _parse_events(answer: StreamedAnswer) -> AsyncGenerator[tuple[str, str], None]:
    """Parse server-sent events on arrival (HTML Living Standard, 9.2.6).

    An event without a blank line at its end is incomplete, and left out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest, event = "", "message"
    data: list[str] = []
    async for part in answer.parts():
        *lines, rest = (rest + decoder.decode(part)).replace("\r\n", "\n").split("\n")
        for line in lines:
            name, _, value = line.partition(":")
            if not line:
                if data:
                    yield event, "\n".join(data)
                event, data = "message", []
            elif name == "event":
                event = value.removeprefix(" ")
            elif name == "data":
                data.append(value.removeprefix(" "))
        if len(rest) > MAX_BYTES:
            raise ConnectionError(f"a line of a stream has over {MAX_BYTES} characters")


def _to_mcp_block(block: Mapping[str, Any]) -> dict[str, Any]:
    wanted = ("type", "text") if block["type"] == "text" else ("type", "data", "mimeType")
    return {name: block[name] for name in wanted}


# ------------------------------------------------------------------ the environment


class OrsEnvironment(MCPEnvironment[Action, Observation]):
    """An environment with the tools of an ORS server; `from_ors` makes subclasses.

    The observation of `reset` holds the task's prompt as the result of a tool named ``reset``. The
    server gives each call's reward, or None. The episode ends when a tool reports that it is
    finished.

    Args:
        place: Address of the environment.
        split: Default split for tasks of `reset`; None for the first split.
        toolset: Name of a toolset that every session gets in addition to its tools.
        timeout_s: Time limit of a call in seconds, unless the caller passes another.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        place: OrsAddress,
        split: str | None = None,
        toolset: str | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__()
        self.TOOL_TIMEOUT_S = timeout_s  # type: ignore[misc]
        self._server = self._mcp_tools = OrsClient(place)
        self._split = split
        self._toolset = toolset
        self._is_over = False

    # ------------------------------------------------------------------ episodes

    async def reset_async(  # type: ignore[override]  # a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | None = None,
        split: str | None = None,
    ) -> CallToolObservation:
        """Begin an episode.

        Args:
            seed: Selects the task if none is given.
            episode_id: Value of `state.episode_id`; by default a new id.
            task: A task's id, such as ``train/3``; a task; or a task's spec. None draws a task.
            split: The split to draw from; by default the environment's.
        """
        self._home = asyncio.get_running_loop()
        chosen, task_id = await self._chosen(task, split, seed)
        if self._toolset is not None:
            chosen["toolset_name"] = self._toolset
        prompt = await self._server.begin(**chosen)
        self._own_state = State(episode_id=episode_id or uuid.uuid4().hex)
        self._is_over = False
        return CallToolObservation(
            tool_name="reset",
            result=to_dump({"content": prompt}),
            metadata={} if task_id is None else {"task": task_id},
        )

    def reset(  # type: ignore[override]
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | None = None,
        split: str | None = None,
    ) -> CallToolObservation:
        return self._run(self.reset_async(seed, episode_id, task, split))

    async def _chosen(
        self, task: str | dict[str, Any] | None, split: str | None, seed: int | None
    ) -> tuple[dict[str, Any], str | None]:
        """Return the ORS parameters for the task, and the task's id if known."""
        if isinstance(task, dict) and not {"id", "split", "index"} <= set(task):
            return {"task_spec": task}, None
        if task is not None:
            name, index = _parse_task_id(task["id"] if isinstance(task, dict) else task)
        else:
            name = split or self._split or (await self._server.splits())[0]["name"]
            count = await self.num_tasks(name)
            if not count:
                raise Refused(f"split: {name!r} has no tasks")
            index = Random(seed).randrange(count)  # nosec B311  # which task, no secret
        return {"split": name, "index": index}, f"{name}/{index}"

    async def _call_tool(
        self, action: CallToolAction, timeout_s: float | None, on_progress: Any = None
    ) -> CallToolObservation:
        if self._is_over:
            raise Refused("the episode is over; reset begins the next one")
        return await super()._call_tool(action, timeout_s, on_progress)

    async def _score_call(self, action: Any, observation: Any) -> Any:
        outcome, self._server.outcome = self._server.outcome, None
        if outcome is not None and observation.error is None:
            observation.done = self._is_over = outcome.finished
            if outcome.metadata is not None:
                observation.metadata = {"ors": outcome.metadata}
            observation = scored(observation, to_score(outcome.reward))
        return self._apply_transform(observation)

    # ------------------------------------------------------------------ tasks

    async def list_splits(self) -> list[dict[str, Any]]:
        """Return the splits, each with a name and a type."""
        found: list[dict[str, Any]] = await self._server.splits()
        return found

    async def list_tasks(self, split: str) -> list[OrsTask]:
        """Return all tasks of a split.

        Raises:
            Refused: The split does not exist, or the server lists no tasks.
        """
        found = (await self._server.tasks("tasks", split=split))["tasks"]
        return [_task(split, index, spec) for index, spec in enumerate(found)]

    async def num_tasks(self, split: str) -> int:
        """Count the tasks of a split.

        Raises:
            Refused: The split does not exist.
        """
        return int((await self._server.tasks("num_tasks", split=split))["num_tasks"])

    async def get_task(self, split: str, index: int) -> OrsTask:
        """Return a task.

        Raises:
            IndexError: There is no task at this index.
            Refused: The split does not exist.
        """
        count = await self.num_tasks(split)
        if not -count <= index < count:
            raise IndexError(f"{split} has {count} tasks, and none at {index}")
        index %= count
        found = await self._server.tasks("task", split=split, index=index)
        return _task(split, index, found["task"])

    async def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[OrsTask]:
        """Return the tasks from `start` up to but excluding `stop`, as a slice does."""
        first, last, _ = slice(start, stop).indices(await self.num_tasks(split))
        body = {"split": split, "start": first, "stop": last}
        found = (await self._server.tasks("task_range", **body))["tasks"]
        return [_task(split, first + offset, spec) for offset, spec in enumerate(found)]


def _task(split: str, index: int, spec: Any) -> OrsTask:
    return OrsTask(id=f"{split}/{index}", split=split, index=index, spec=spec)


def _parse_task_id(task_id: str) -> tuple[str, int]:
    split, slash, index = task_id.rpartition("/")
    if not slash or not index.isdecimal():
        raise Refused(f"task: expected split/index, such as 'train/3', got {task_id!r}")
    return split, int(index)


def from_ors(
    url: Any,
    /,
    *,
    split: str | None = None,
    toolset: str | None = None,
    timeout_s: float = 600.0,
    headers: Mapping[str, str] | None = None,
) -> type[Any]:
    """Make an environment class from an environment of an ORS server.

    Args:
        url: URL of the server, followed by the environment's name: ``http://host:port/name``;
            without a name, the server's first environment. Or a class of the package `openreward`,
            which is then served in this process on a free local port.
        split: Default split for tasks of `reset`; None for the first split.
        toolset: Name of a toolset that every session gets in addition to its tools.
        timeout_s: Time limit of a call in seconds, unless the caller passes another.
        headers: Headers of every request, such as a key.

    Raises:
        AdapterError: No server answers, or it does not have the environment.
    """
    source = url
    if isinstance(url, type):
        url = _serve_class(url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise AdapterError(f"{url!r} is no URL; expected http://host:port/environment")
    server = f"{parts.scheme}://{parts.netloc}"
    place = _find_environment(server, parts.path.strip("/"), dict(headers or {}))
    options = {"split": split, "toolset": toolset, "timeout_s": timeout_s}
    made_by = functools.partial(from_ors, source, headers=headers, **options)  # type: ignore[arg-type]
    arguments = {"place": place, **options}
    return assign_to_caller(make_preset(OrsEnvironment, place.environment, made_by, arguments))  # type: ignore[no-any-return]


@functools.cache
def _serve_class(cls: type) -> str:
    """Serve a class with the reference server for the life of this process; return the URL."""
    import uvicorn

    with needs("openenv.wrappers.from_ors", "pip install openreward"):
        environments = importlib.import_module("openreward.environments")
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # from here on a client waits instead of being refused
    config = uvicorn.Config(environments.Server([cls]).app, log_level="warning", ws="none")
    threading.Thread(
        target=uvicorn.Server(config).run,
        kwargs={"sockets": [listening]},
        name=f"openenv-ors-{cls.__name__}",
        daemon=True,
    ).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}/{cls.__name__.lower()}"


def _find_environment(url: str, name: str, headers: Mapping[str, str]) -> OrsAddress:
    try:
        answer = ask(f"{url}/list_environments", headers, timeout_s=CONNECT_TIMEOUT_S)
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        known = [str(one) for one in read_json(answer.body)]
    except (*FAILURES, TypeError) as error:
        raise AdapterError(f"no ORS server answers at {redact(url)}: {error}") from error
    if not known:
        raise AdapterError(f"the ORS server at {redact(url)} has no environment")
    if name and name.lower() not in known:
        raise AdapterError(
            f"the ORS server at {redact(url)} has no environment {name!r}"
            f"{suggest_name(name.lower(), known)}"
        )
    return OrsAddress(url, name.lower() or known[0], headers)
