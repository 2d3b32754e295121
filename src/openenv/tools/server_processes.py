"""The MCP servers that an environment wraps, as a single set of tools.

Each episode starts with fresh state. If the server has a reset tool, that tool is called. Otherwise
a new process is started, unless no tool was called on the running one. A server that fails stays
failed, with its reason (`_fate`), until the next `reset`, so that no call of an episode reaches a
server that has lost the state of that episode.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_core import to_json

from openenv._internal.quoting import printable
from openenv._internal.redaction import redact
from openenv._internal.timing import Expired, raise_first, within
from openenv.errors import InvalidArgumentError, Refused, words
from openenv.tools.connections import ConnectionBroken, MCPConnection, ServerRefused
from openenv.tools.functions import UnknownTool
from openenv.tools.progress import OnProgress
from openenv.tools.results import extract_text
from openenv.tools.servers import ServerTools, open_server_tools
from openenv.tools.sources import Address, InProcess, Program, Source
from openenv.tools.transports import MCPServerProcess, connect_address, connect_process
from openenv.tools.types import RESERVED_TOOL_NAMES

logger = logging.getLogger(__name__)

T = TypeVar("T")

RESET = "reset"  # a tool of this name begins an episode
# Limits per server: number of tools, and bytes of a tool's description as JSON.
MAX_TOOLS, MAX_TOOL_BYTES = 1000, 2**16
COURTESY = frozenset({"seed", "episode_id"})  # arguments that callers pass to any environment


@dataclass(frozen=True)
class Definition:
    """The arguments of `wrap`, from which another process makes the class again."""

    name: str
    sources: Mapping[str, Source]
    reward: Any
    rubric: Any
    done: Any
    transform: Any
    tools: tuple[str, ...] | None
    prefix: bool
    reset_tool: str | None
    max_steps: int | None
    timeout_s: float
    start_timeout_s: float


class WrappedServerGone(ConnectionBroken, Refused):
    """A wrapped server does not start, or has ended; calls fail until `reset`."""


class WrappedServer:
    """A wrapped MCP server that starts on first use.

    Args:
        name: The server's name in messages and prefixes of tools.
        source: The server's definition.
        reset_tool: The tool that begins an episode.
        start_timeout_s: Time limit for starting, in seconds.
    """

    def __init__(
        self, name: str, source: Source, reset_tool: str | None, start_timeout_s: float
    ) -> None:
        self.name = name
        self._source = source
        self._reset_tool = reset_tool or RESET
        self._start_timeout_s = start_timeout_s
        self._process: MCPServerProcess | None = None
        self._server: ServerTools | MCPConnection | None = None
        self._fate: str | None = None
        self._is_used = self._has_reset = False
        self._is_given_up = False  # an abandoned call may still be running
        self._has_warned = False

    def __str__(self) -> str:
        return f"the MCP server {self.name!r} ({self._source})"

    # ------------------------------------------------------------------ life cycle

    async def begin(self, arguments: Mapping[str, Any], timeout_s: float) -> tuple[Any, set[str]]:
        """Begin an episode with the server's reset tool, or with a fresh server.

        Returns:
            The result of the reset tool, in MCP's form, or None; and the arguments that the tool
            accepts.

        Raises:
            WrappedServerGone: The server does not start.
            Refused: The reset tool failed.
        """
        if not await self._is_fit():
            await self.aclose()
        tool = await self._tool_for_reset()
        if tool is None:
            return None, set()
        known = (tool.get("inputSchema") or {}).get("properties") or {}
        passed = {k: v for k, v in arguments.items() if k in known and v is not None}
        return await self._reset_by(tool["name"], passed, timeout_s), set(known)

    async def _is_fit(self) -> bool:
        """Return whether an episode can begin on the running server: reset tool or unused."""
        if self._server is None or self._fate is not None or self._is_given_up:
            return False
        if self._is_used and not self._has_reset:
            return False
        try:
            return await self._tool_for_reset() is not None or not self._is_used
        except Exception:  # a fresh server may not have the problem
            return False

    async def _reset_by(self, name: str, passed: dict[str, Any], timeout_s: float) -> Any:
        try:
            result = await within(timeout_s, self.call(name, passed))
        except Expired:
            why = f"took longer than {timeout_s:g} s to reset by its tool {name!r}"
            raise await self._mark_gone(why, with_words=True) from None
        if result.get("isError"):
            raise Refused(f"{self}: the tool {name!r} failed: {redact(extract_text(result))}")
        return result

    async def _tool_for_reset(self) -> dict[str, Any] | None:
        found = await self._all_tools()
        tool = next((one for one in found if one["name"] == self._reset_tool), None)
        self._has_reset = tool is not None
        return tool

    async def _start(self) -> ServerTools | MCPConnection:
        """Return the server, after starting it if necessary.

        Raises:
            WrappedServerGone: The server does not start, or has ended.
        """
        if self._fate is not None:
            raise WrappedServerGone(self._fate)
        if self._server is None:
            self._server = await self._make_server()
        if isinstance(self._server, MCPConnection):
            try:
                await self._server.open()
            except ConnectionError as error:
                why = words(error).removeprefix("it: ")
                raise await self._mark_gone(f"did not start: {why}", with_words=True) from error
        return self._server

    async def _make_server(self) -> ServerTools | MCPConnection:
        source = self._source
        if isinstance(source, InProcess):
            if source.is_shared:
                return open_server_tools(source.server)
            made = await asyncio.to_thread(source.server)
            return open_server_tools(await made if inspect.isawaitable(made) else made)
        if isinstance(source, Program):
            self._process = MCPServerProcess(source, self.name)
            opened: Any = functools.partial(connect_process, self._process)
        else:
            assert isinstance(source, Address)
            opened = functools.partial(connect_address, source)
        return MCPConnection(opened, "it", self._start_timeout_s)

    async def _mark_gone(self, what: str, *, with_words: bool) -> WrappedServerGone:
        """Mark the server as failed until `reset`, and return the error to raise."""
        how, stderr = None, ""
        if self._process is not None:
            how, stderr = await self._process.how_it_ended(), self._process.last_words
        text = f"{self} {what}" + (f" ({how})" if how else "")
        full_text = f"{text}. The last that it wrote:\n{stderr}" if stderr else text
        logger.warning("%s", redact(full_text))
        self._fate = redact(full_text if with_words else text)
        server, self._server = self._server, None
        if server is not None:
            await server.aclose()
        return WrappedServerGone(self._fate)

    async def aclose(self) -> None:
        """End the server; the next call starts it again."""
        server, self._server = self._server, None
        self._fate, self._is_used, self._is_given_up = None, False, False
        if server is not None:
            await server.aclose()

    # ------------------------------------------------------------------ tools

    async def tools(self) -> list[dict[str, Any]]:
        """List the tools for agents, in MCP's form.

        Raises:
            WrappedServerGone: The server does not start, or has ended.
        """
        hidden = {*RESERVED_TOOL_NAMES, self._reset_tool}
        return [one for one in await self._all_tools() if one["name"] not in hidden]

    async def _all_tools(self) -> list[dict[str, Any]]:
        server = await self._start()
        try:
            found = await within(self._start_timeout_s, self._request(server.tools()))
        except Expired:
            why = f"did not list its tools within {self._start_timeout_s:g} s"
            raise await self._mark_gone(why, with_words=True) from None
        if len(found) > MAX_TOOLS:
            raise Refused(f"{self} lists {len(found)} tools; at most {MAX_TOOLS} are taken")
        kept = [one for one in found if len(to_json(one)) <= MAX_TOOL_BYTES]
        if len(kept) < len(found) and not self._has_warned:
            self._has_warned = True
            large = ", ".join(printable(one["name"])[:80] for one in found if one not in kept)
            logger.warning("%s: tools of more than %d bytes: %s", self, MAX_TOOL_BYTES, large)
        return kept

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Call a tool.

        Raises:
            WrappedServerGone: The server does not start, or has ended.
        """
        server = await self._start()
        self._is_used = True
        try:
            return await self._request(server.call(name, arguments, on_progress))
        except asyncio.CancelledError:
            self._is_given_up = True
            raise

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request for something other than tools.

        Raises:
            ServerRefused: The server answered with an error.
            WrappedServerGone: The server does not start, or has ended.
        """
        server = await self._start()
        return await self._request(server.ask(method, params))

    async def _request(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            return await request
        except ConnectionError as error:
            raise await self._mark_gone(
                "has ended; reset starts it again", with_words=False
            ) from error


class WrappedServers:
    """All MCP servers that an environment wraps, as a set of tools."""

    def __init__(self, definition: Definition) -> None:
        self._servers = [
            WrappedServer(name, source, definition.reset_tool, definition.start_timeout_s)
            for name, source in definition.sources.items()
        ]
        self._definition = definition
        self._routes: dict[str, tuple[WrappedServer, str]] = {}

    async def begin(self, arguments: Mapping[str, Any], timeout_s: float) -> list[tuple[str, Any]]:
        """Begin an episode.

        Returns:
            The results of the reset tools, in MCP's form, by server name.

        Raises:
            WrappedServerGone: A server does not start.
            Refused: A reset tool failed, or no server has the named reset tool.
            InvalidArgumentError: No reset tool accepts an argument.
        """
        begun = await _await_all(server.begin(arguments, timeout_s) for server in self._servers)
        await self.tools()
        known: set[str] = set().union(*(taken for _, taken in begun))
        if unknown := sorted(arguments.keys() - known - COURTESY):
            raise InvalidArgumentError("reset", unknown, sorted(known | COURTESY))
        if arguments.get("seed") is not None and "seed" not in known:
            _report_seed(tuple(server.name for server in self._servers))
        results = [
            (server.name, result)
            for server, (result, _) in zip(self._servers, begun, strict=True)
            if result is not None
        ]
        reset_tool = self._definition.reset_tool
        if reset_tool is not None and not results:
            raise Refused(f"no wrapped server has the tool {reset_tool!r} to begin episodes")
        return results

    async def tools(self) -> list[dict[str, Any]]:
        """List the tools, in MCP's form, under the names for agents."""
        listed = await _await_all(server.tools() for server in self._servers)
        offered = [
            (g, tool) for g, tools in zip(self._servers, listed, strict=True) for tool in tools
        ]
        count = Counter(tool["name"] for _, tool in offered)
        routes: dict[str, tuple[WrappedServer, str]] = {}
        found = []
        for server, tool in offered:
            name = tool["name"]
            if self._definition.prefix or count[name] > 1:
                name = f"{server.name}_{name}"
            if name in routes:
                raise Refused(
                    f"{server} and {routes[name][0]} both have a tool that would be named "
                    f"{name!r}; rename one of the servers"
                )
            routes[name] = (server, tool["name"])
            found.append({**tool, "name": name})
        only = self._definition.tools
        if only is not None:
            if missing := sorted(set(only) - routes.keys()):
                there = ", ".join(sorted(routes))
                raise Refused(f"the wrapped servers have no tools {missing}; they have: {there}")
            routes = {name: routes[name] for name in only}
            found = [tool for tool in found if tool["name"] in routes]
        self._routes = routes
        return found

    async def known_tools(self) -> list[dict[str, Any]]:
        """Return no tools, since tools are known only after the servers have started."""
        return []

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Call a tool.

        Raises:
            UnknownTool: There is no tool of that name.
            WrappedServerGone: The server does not start, or has ended.
        """
        if name not in self._routes:
            await self.tools()
        if name not in self._routes:
            raise UnknownTool(f"Unknown tool: {name!r}")
        server, inner = self._routes[name]
        return await server.call(inner, arguments, on_progress)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request for something other than tools to all servers.

        Returns:
            Lists are merged; for other methods, the first answer.

        Raises:
            ServerRefused: No server knows the requested object.
            WrappedServerGone: A server does not start, or has ended.
        """
        asked = [server.ask(method, params) for server in self._servers]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        answers = [one for one in outcomes if not isinstance(one, BaseException)]
        for outcome in outcomes:
            is_refusal = isinstance(outcome, ServerRefused)
            if isinstance(outcome, BaseException) and not (is_refusal and answers):
                raise outcome
        if not method.endswith("/list"):
            return answers[0]
        merged: dict[str, Any] = {}
        for answer in answers:
            for name, found in answer.items():
                if isinstance(found, list):
                    merged[name] = [*merged.get(name, ()), *found]
                else:
                    merged.setdefault(name, found)
        return merged

    async def aclose(self) -> None:
        """End all servers."""
        await _await_all(server.aclose() for server in self._servers)


async def _await_all(work: Iterable[Any]) -> list[Any]:
    """Await everything, even after a failure; then raise the first exception."""
    results = await asyncio.gather(*work, return_exceptions=True)
    raise_first(results)
    return results


@functools.lru_cache(maxsize=100)
def _report_seed(names: tuple[str, ...]) -> None:
    logger.warning(
        "reset was passed a seed, and no reset tool of %s takes one; it was ignored (said once)",
        ", ".join(names),
    )
