"""Environments of servers that speak the Open Reward Standard, as environments of this package.

ORS: sessions, tasks and tools over HTTP, results of tools over server-sent events
(https://openrewardstandard.io; the server of the package `openreward` is the reference). Every
session has a session there for each episode.
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
from openenv.wrappers.made import AdapterError, claimed, did_you_mean, preset, score_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["OrsEnvironment", "OrsTask", "from_ors"]

CONNECT_TIMEOUT_S = 10.0
PING_INTERVAL_S = 30.0  # the reference server forgets a session after 900 s without a word
STARTING = "X-Backend-State"
SILENCE_S = 60.0  # in which a server says something, if only that a call still goes on
START_TIMEOUT_S = 600.0
CLOSE_TIMEOUT_S = 5.0


class OrsTask(BaseModel):
    """A task of a server.

    Attributes:
        id: ``split/index``, which `reset` takes.
        split: The split's name.
        index: Where it stands in the split.
        spec: What the server says of it, which may hold the answer.
    """

    id: str
    split: str
    index: int
    spec: Annotated[Any, Private]


class Place(NamedTuple):
    """Where an environment is.

    Attributes:
        url: The server's.
        environment: The environment's name there.
        headers: What every request carries.
    """

    url: str
    environment: str
    headers: Mapping[str, str]


class Outcome(NamedTuple):
    """What a tool said beside its content."""

    reward: float | None
    finished: bool
    metadata: Any


class Server:
    """One environment of a server, and the session there that an episode has.

    It offers the tools as `MCPEnvironment` asks for them.

    Attributes:
        outcome: What the last call came to; None where it failed.
    """

    def __init__(self, place: Place) -> None:
        self.outcome: Outcome | None = None
        self._place = place
        self._http = HTTPClient(place.url, timeout_s=SILENCE_S, follows_redirects=True)
        self._session: str | None = None
        self._pinging: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ HTTP

    async def ask(self, method: str, params: Mapping[str, Any]) -> None:
        """It has neither resources nor prompts nor completions."""
        return None

    async def _asked(
        self, method: str, path: str, body: Any = None, *, session: str | None = None
    ) -> Any:
        """The JSON that a route answers, once the environment there has started.

        Raises:
            Refused: It answered with an error.
            ConnectionError: It did not answer.
        """
        until = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while True:
            async with self._requested(method, path, body, session or self._session) as answer:
                content = await answer.read(MAX_BYTES + 1)
            is_starting = answer.status == 503 and STARTING in answer.headers
            if not is_starting or asyncio.get_running_loop().time() > until:
                _check(answer.status, content, path)
                if len(content) > MAX_BYTES:
                    raise ConnectionError(f"the answer of {path} has over {MAX_BYTES} bytes")
                return read_json(content)
            await asyncio.sleep(float(answer.headers.get("retry-after", "1")))

    @contextlib.asynccontextmanager
    async def _requested(
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
        """The events of a stream, as pairs of event and data."""
        async with self._requested("POST", path, body, self._session) as answer:
            if answer.status >= 300:
                _check(answer.status, await answer.read(MAX_BYTES), path)
            async for event in _parsed(_lines(answer)):
                yield event

    def _path(self, route: str) -> str:
        return f"/{self._place.environment}/{route}"

    # ------------------------------------------------------------------ tasks

    async def splits(self) -> list[dict[str, Any]]:
        """The splits, each with a name and a type."""
        found: list[dict[str, Any]] = await self._asked("GET", self._path("splits"))
        return found

    async def tasks(self, route: str, **body: Any) -> Any:
        """What one of the routes of tasks says."""
        return await self._asked("POST", self._path(route), body)

    # ------------------------------------------------------------------ a session

    async def begin(self, **chosen: Any) -> list[dict[str, Any]]:
        """Open a session for a task, then close the one before; return the task's prompt, as
        content blocks of MCP. Where that fails the one before goes on.
        """
        before, self._session, self._pinging = (self._session, self._pinging), None, None
        try:
            blocks = await self._opened(chosen)
        except BaseException:
            await self._close(self._session, self._pinging)
            self._session, self._pinging = before
            raise
        await self._close(*before)
        return [_block(one) for one in blocks]

    async def _opened(self, chosen: Mapping[str, Any]) -> Any:
        async with aclosing(self._events("/create_session", {})) as events:
            async for event, data in events:
                if event == "task_id":
                    self._session = data
        if self._session is None:
            raise Refused("the ORS server opened no session: it sent no task_id")
        named = {"env_name": self._place.environment}
        await self._asked("POST", "/create", {**named, **chosen})
        self._pinging = asyncio.create_task(self._ping())
        return await self._asked("GET", self._path("prompt"))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_INTERVAL_S)
            with contextlib.suppress(Refused, ConnectionError):  # the next call tells
                await self._asked("POST", "/ping")

    async def _close(self, session: str | None, pinging: asyncio.Task[None] | None) -> None:
        """Close a session there; a server that does not answer forgets it by itself."""
        if pinging is not None:
            pinging.cancel()
        if session is None:
            return
        with contextlib.suppress(Refused, ConnectionError, asyncio.TimeoutError):
            for path in ("/delete", "/delete_session"):
                await asyncio.wait_for(self._asked("POST", path, session=session), CLOSE_TIMEOUT_S)

    async def aclose(self) -> None:
        """Close the session and the connections."""
        session, self._session = self._session, None
        await self._close(session, self._pinging)
        await self._http.aclose()

    # ------------------------------------------------------------------ its tools

    async def tools(self) -> list[dict[str, Any]]:
        """The tools, as MCP's `tools/list` has them: those of the session, where there is one.

        The tool that ORS has take an agent's last message is among them, since agents here do
        nothing but call tools.
        """
        route = "tools" if self._session is None else "task_tools"
        listed = await self._asked("GET", self._path(route))
        found = [
            {
                "name": one["name"],
                "description": one.get("description") or "",
                "inputSchema": one.get("input_schema") or {"type": "object", "properties": {}},
            }
            for one in listed["tools"]
        ]
        last = listed.get("terminal_tool")
        return found if last is None else [*found, _terminal_tool(last)]

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: Any = None
    ) -> dict[str, Any]:
        """Call a tool; a result in MCP's form.

        Raises:
            UnknownTool: There is none of that name.
            InvalidToolArguments: It does not take these.
            Refused: It failed.
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
        answer = _read(text, name)
        if not answer["ok"]:
            raise _failure(answer)
        output = answer["output"]
        self.outcome = Outcome(
            output.get("reward"), bool(output.get("finished")), output.get("metadata")
        )
        return {"content": [_block(one) for one in output["blocks"]], "isError": False}


def _check(status: int, content: bytes, path: str) -> None:
    if status < 300:
        return
    try:
        detail = read_json(content)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = content.decode(errors="replace") or f"status {status}"
    raise Refused(f"the ORS server refused {path}: {redact(str(detail))[:500]}")


async def _lines(answer: StreamedAnswer) -> AsyncIterator[str]:
    """Give the whole lines of an answer, as they come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    async for part in answer.parts():
        *lines, rest = (rest + decoder.decode(part)).replace("\r\n", "\n").split("\n")
        for line in lines:
            yield line
        if len(rest) > MAX_BYTES:
            raise ConnectionError(f"a line of a stream has over {MAX_BYTES} characters")


async def _parsed(lines: AsyncIterator[str]) -> AsyncGenerator[tuple[str, str], None]:
    """Server-sent events (HTML Living Standard, 9.2.6)."""
    event = "message"
    data: list[str] = []
    async for line in lines:
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
    # What no blank line ends is not whole.


def _read(text: str, name: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        raise ConnectionError(f"the answer of the tool {name} broke off") from None
    return answer


def _failure(answer: Mapping[str, Any]) -> Exception:
    text = redact(str(answer.get("error")))
    kinds = {"not_found": UnknownTool, "input_validation": InvalidToolArguments}
    return kinds.get(str(answer.get("reason")), Refused)(text)


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block of ORS as a content block of MCP, which it nearly is."""
    wanted = ("type", "text") if block["type"] == "text" else ("type", "data", "mimeType")
    return {name: block[name] for name in wanted}


def _terminal_tool(last: Mapping[str, Any]) -> dict[str, Any]:
    argument = last.get("arg")
    properties = {} if argument is None else {argument: {"type": "string"}}
    return {
        "name": last["name"],
        "description": f"{last.get('description') or ''} It ends the episode.".strip(),
        "inputSchema": {"type": "object", "properties": properties, "required": list(properties)},
    }


# ------------------------------------------------------------------ the environment


class OrsEnvironment(MCPEnvironment[Action, Observation]):
    """An environment of an ORS server: its tools are the server's; `from_ors` makes subclasses.

    The observation of `reset` holds the task's prompt as the result of a tool called ``reset``.
    Each call's reward is the server's, None where it gave none; the episode is over when a tool
    says that it is finished.

    Args:
        place: Where it is.
        split: The split from which `reset` takes a task; by default the first one.
        toolset: The name of a toolset that every session gets beside its tools.
        timeout_s: Seconds that a call may take, unless the caller says otherwise.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        place: Place,
        split: str | None = None,
        toolset: str | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__()
        self.TOOL_TIMEOUT_S = timeout_s  # type: ignore[misc]
        self._server = self._mcp_tools = Server(place)
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
            seed: Chooses the task, where none is given.
            episode_id: Becomes `state.episode_id`; None makes one up.
            task: A task's id, such as ``train/3``; or a task, or only its spec. None draws one.
            split: From where one is drawn; by default the environment's split.
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
        """What ORS is told of the task, and the task's id, if it has one."""
        if isinstance(task, dict) and not {"id", "split", "index"} <= set(task):
            return {"task_spec": task}, None
        if task is not None:
            name, index = _place_of(task["id"] if isinstance(task, dict) else task)
        else:
            name = split or self._split or (await self._server.splits())[0]["name"]
            count = await self.num_tasks(name)
            if not count:
                raise Refused(f"split: {name!r} has no tasks")
            index = Random(seed).randrange(count)  # nosec B311  # which task, no secret
        return {"split": name, "index": index}, f"{name}/{index}"

    async def _called(
        self, action: CallToolAction, timeout_s: float | None, on_progress: Any = None
    ) -> CallToolObservation:
        if self._is_over:
            raise Refused("the episode is over; reset begins the next one")
        return await super()._called(action, timeout_s, on_progress)

    async def _scored(self, action: Any, observation: Any) -> Any:
        outcome, self._server.outcome = self._server.outcome, None
        if outcome is not None and observation.error is None:
            observation.done = self._is_over = outcome.finished
            if outcome.metadata is not None:
                observation.metadata = {"ors": outcome.metadata}
            observation = scored(observation, score_of(outcome.reward))
        return self._apply_transform(observation)

    # ------------------------------------------------------------------ tasks

    async def list_splits(self) -> list[dict[str, Any]]:
        """Name the splits, each with its type."""
        return await self._server.splits()

    async def list_tasks(self, split: str) -> list[OrsTask]:
        """Give every task of a split.

        Raises:
            Refused: There is no such split, or the server lists none.
        """
        found = (await self._server.tasks("tasks", split=split))["tasks"]
        return [_task(split, index, spec) for index, spec in enumerate(found)]

    async def num_tasks(self, split: str) -> int:
        """Count the tasks of a split.

        Raises:
            Refused: There is no such split.
        """
        return int((await self._server.tasks("num_tasks", split=split))["num_tasks"])

    async def get_task(self, split: str, index: int) -> OrsTask:
        """Give one task.

        Raises:
            IndexError: There is none at this index.
            Refused: There is no such split.
        """
        count = await self.num_tasks(split)
        if not -count <= index < count:
            raise IndexError(f"{split} has {count} tasks, and none at {index}")
        index %= count
        return _task(
            split, index, (await self._server.tasks("task", split=split, index=index))["task"]
        )

    async def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[OrsTask]:
        """Give the tasks from `start` to before `stop`, as a slice does."""
        first, last, _ = slice(start, stop).indices(await self.num_tasks(split))
        body = {"split": split, "start": first, "stop": last}
        found = (await self._server.tasks("task_range", **body))["tasks"]
        return [_task(split, first + offset, spec) for offset, spec in enumerate(found)]


def _task(split: str, index: int, spec: Any) -> OrsTask:
    return OrsTask(id=f"{split}/{index}", split=split, index=index, spec=spec)


def _place_of(task_id: str) -> tuple[str, int]:
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
    """Make an environment class of an environment that an ORS server serves.

    Args:
        url: The server's, and after it the environment's name: ``http://host:port/name``; without
            one, the server's first environment. Or a class of the package `openreward`, which then
            is served in this process, on a free port of this machine.
        split: The split from which `reset` takes a task; by default the first one.
        toolset: The name of a toolset that every session gets beside its tools.
        timeout_s: Seconds that a call may take, unless the caller says otherwise.
        headers: What every request carries, such as a key.

    Raises:
        AdapterError: No server answers there, or it has no such environment.
    """
    source = url
    if isinstance(url, type):
        url = _served(url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise AdapterError(f"{url!r} is no URL; expected http://host:port/environment")
    place = _found(f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"), dict(headers or {}))
    options = {"split": split, "toolset": toolset, "timeout_s": timeout_s}
    made_by = functools.partial(from_ors, source, headers=headers, **options)  # type: ignore[arg-type]
    arguments = {"place": place, **options}
    return claimed(preset(OrsEnvironment, place.environment, made_by, arguments))  # type: ignore[no-any-return]


@functools.cache
def _served(cls: type) -> str:
    """Serve a class by the reference server, for as long as this process runs; its URL."""
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


def _found(url: str, name: str, headers: Mapping[str, str]) -> Place:
    """Look for an environment on a server."""
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
            f"{did_you_mean(name.lower(), known)}"
        )
    return Place(url, name.lower() or known[0], headers)
