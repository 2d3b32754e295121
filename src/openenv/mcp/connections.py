"""A client's connection to an MCP server, by whichever version of the official SDK is there.

A connection lives in a task of its own, since the SDK's clients have to be entered and left by one
and the same task; calls may come from any other task of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import metadata
from typing import Any, Protocol

from openenv.errors import OpenEnvError
from openenv.mcp.functions import InvalidToolArguments, UnknownTool
from openenv.mcp.results import WRAPPED

__all__ = [
    "Connection",
    "ConnectionBroken",
    "OnProgress",
    "Speaker",
    "code_of",
    "sdk_version",
    "speaker_of_sdk",
]

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]

MAX_PAGES = 1000  # of a list; a server that goes in circles is none that can be listed
CLOSE_LIMIT_S = 10.0
INVALID_PARAMS = -32602  # of JSON-RPC
# What the SDK says of a server that is no longer there, and servers of a session that is not.
GONE = ("Connection closed", "Session terminated", "Session not found")
SERVER_INFO = "io.modelcontextprotocol/serverInfo"  # which a server puts on each of its results


class ConnectionBroken(OpenEnvError, ConnectionError):
    """The MCP server cannot be reached, or no longer."""


@functools.cache
def sdk_version() -> int:
    """The major version of the official SDK, the package `mcp`.

    Raises:
        ModuleNotFoundError: It is not there.
    """
    try:
        return int(metadata.version("mcp").partition(".")[0])
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            "the official MCP SDK is needed: pip install 'mcp>=2'", name="mcp"
        ) from None


class Speaker(Protocol):
    """What asks an MCP server, once connected."""

    async def tools(self) -> list[dict[str, Any]]:
        """Its tools, in the wire's form."""
        ...

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        """Call a tool; a result in the wire's form."""
        ...


class SDKSpeaker:
    """Asks by a client of the official SDK: `mcp.Client`, or `ClientSession` before version 2."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            if sdk_version() >= 2:
                page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
                cursor = page.next_cursor
            else:
                page = await self._client.list_tools(cursor)
                cursor = page.nextCursor
            found += [_plain(tool) for tool in page.tools]
            if cursor is None:
                return found
        raise OpenEnvError(f"the MCP server's list of tools has no end after {MAX_PAGES} pages")

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        result = await self._client.call_tool(name, arguments, progress_callback=on_progress)
        return plain_result(result)


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def plain_result(result: Any) -> dict[str, Any]:
    """The result of a call, in the wire's form, of either version of the SDK."""
    plain = _plain(result)
    if (meta := plain.get("_meta")) is not None and meta.pop(SERVER_INFO, None) and not meta:
        del plain["_meta"]
    return {"content": [], **plain, "isError": bool(plain.get("isError"))}


@contextlib.asynccontextmanager
async def speaker_of_sdk(target: Any, greeting: str = "auto") -> AsyncIterator[Speaker]:
    """Connect to an MCP server.

    Args:
        target: A server object of the SDK, to be called in this process; or a transport of the
            SDK, such as `stdio_client(...)` gives.
        greeting: How it is greeted, of the SDK's version 2: ``auto``, or ``legacy`` for the
            handshake of the revisions until 2025-11-25.
    """
    if "mcp" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "mcp")  # which takes half a second
    if sdk_version() >= 2:
        from mcp import Client

        async with Client(target, mode=greeting) as client:
            yield SDKSpeaker(client)
        return
    from mcp import ClientSession
    from mcp.shared import memory

    if not isinstance(target, AbstractAsyncContextManager):
        server = getattr(target, "_mcp_server", target)
        connect = getattr(memory, "create_connected_server_and_client_session")  # noqa: B009
        async with connect(server) as session:
            yield SDKSpeaker(session)
        return
    async with target as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield SDKSpeaker(session)


class Connection:
    """A connection to an MCP server, opened when it is first needed.

    Args:
        open_speaker: Connects.
        name: How messages call the server.
        connect_timeout_s: Seconds that connecting may take.
    """

    def __init__(
        self,
        open_speaker: Callable[[], AbstractAsyncContextManager[Speaker]],
        name: str = "the MCP server",
        connect_timeout_s: float = 60.0,
    ) -> None:
        self._open_speaker = open_speaker
        self._name = name
        self._connect_timeout_s = connect_timeout_s
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Speaker] | None = None
        self._over = asyncio.Event()
        self._wrapping: dict[str, bool] | None = None

    async def open(self) -> Speaker:
        """Connect, unless it is connected.

        Raises:
            ConnectionBroken: It cannot be reached, or the connection has ended.
        """
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._owner = asyncio.ensure_future(self._own(self._ready))
        done, _ = await asyncio.wait([self._ready], timeout=self._connect_timeout_s)
        if not done:
            raise ConnectionBroken(
                f"{self._name} did not answer within {self._connect_timeout_s:g} s"
            )
        speaker = self._ready.result()
        if self._owner is None or self._owner.done():
            raise ConnectionBroken(f"the connection to {self._name} has ended")
        return speaker

    async def _own(self, ready: asyncio.Future[Speaker]) -> None:
        try:
            async with self._open_speaker() as speaker:
                ready.set_result(speaker)
                await self._over.wait()
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(ConnectionBroken(f"{self._name} was closed"))
                ready.exception()
            raise
        except BaseException as error:
            if ready.done():  # it broke as it was left
                return
            ready.set_exception(ConnectionBroken(f"{self._name}: {_words(error)}"))
            ready.exception()  # that nobody may have waited for

    async def tools(self) -> list[dict[str, Any]]:
        """The server's tools, in the wire's form."""
        with _broken(self._name):
            found = await (await self.open()).tools()
        self._wrapping = {
            tool["name"]: bool((tool.get("outputSchema") or {}).get("x-fastmcp-wrap-result"))
            for tool in found
        }
        return found

    async def at_once(self) -> list[dict[str, Any]]:
        """Nothing: what tools there are is known once it is connected."""
        return []

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Call a tool.

        Raises:
            UnknownTool: The server has none of that name.
            InvalidToolArguments: The tool does not take these.
            ConnectionBroken: The server is gone.
        """
        if self._wrapping is None or name not in self._wrapping:
            await self.tools()
        assert self._wrapping is not None
        if name not in self._wrapping:
            raise UnknownTool(f"Unknown tool: {name!r}")
        with _broken(self._name):
            speaker = await self.open()
            try:
                result = await speaker.call(name, dict(arguments), on_progress)
            except Exception as error:
                if code_of(error) == INVALID_PARAMS:
                    raise InvalidToolArguments(str(error)) from error
                raise
        if self._wrapping[name] and "structuredContent" in result:
            result["_meta"] = {**(result.get("_meta") or {}), **WRAPPED}
        return result

    async def aclose(self) -> None:
        """Disconnect, and end a process that was started for it."""
        self._over.set()
        if self._owner is None or self._owner.done():
            return
        if self._ready is not None and not self._ready.done():
            self._owner.cancel()
        _, late = await asyncio.wait([self._owner], timeout=CLOSE_LIMIT_S)
        for task in late:
            task.cancel()


@contextlib.contextmanager
def _broken(name: str) -> Iterator[None]:
    """Have it said in one way that a server is gone."""
    import anyio

    try:
        yield
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, EOFError, OSError) as error:
        if isinstance(error, ConnectionBroken | TimeoutError):
            raise
        raise ConnectionBroken(f"{name} is gone ({_words(error)})") from error
    except Exception as error:
        if any(words in str(error) for words in GONE):
            raise ConnectionBroken(f"{name} is gone ({_words(error)})") from error
        raise


def _first(error: BaseException) -> BaseException:
    """An exception, or the first one in a group."""
    while isinstance(getattr(error, "exceptions", None), tuple):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error


def code_of(error: BaseException) -> int | None:
    """The code of JSON-RPC, of an exception of the SDK that is a server's answer."""
    code = getattr(getattr(_first(error), "error", None), "code", None)
    return code if isinstance(code, int) else None


def _words(error: BaseException) -> str:
    """The text of an exception, or of the first one in a group."""
    error = _first(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
