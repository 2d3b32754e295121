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

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from openenv.errors import OpenEnvError, Refused
from openenv.tools.functions import InvalidToolArguments, UnknownTool
from openenv.tools.results import WRAPPED

__all__ = [
    "Connection",
    "ConnectionBroken",
    "OnProgress",
    "ServerRefused",
    "Speaker",
    "ask_session",
    "code_of",
    "sdk_version",
    "speaker_of_sdk",
]

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]

# Of a list: a server that goes in circles is none that can be listed. All pages together take as
# much as one message may.
MAX_PAGES, MAX_LISTED_BYTES = 1000, 64 * 2**20
CLOSE_LIMIT_S, TELL_LIMIT_S = 10.0, 1.0
INVALID_PARAMS = -32602  # of JSON-RPC
# What the SDK says of a server that is no longer there, and servers of a session that is not.
GONE = ("Connection closed", "Session terminated", "Session not found")
SERVER_INFO = "io.modelcontextprotocol/serverInfo"  # which a server puts on each of its results


class ConnectionBroken(OpenEnvError, ConnectionError):
    """The MCP server cannot be reached, or no longer."""


class ServerRefused(Refused):
    """The MCP server answered with an error; `code` is one of JSON-RPC or MCP."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code, self.message, self.data = code, message, data
        super().__init__(code, message, data)

    def __str__(self) -> str:
        return self.message


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

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask anything else; both in the wire's form."""
        ...


class _Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


async def ask_session(session: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request by a `ClientSession` of the SDK; the result, in the wire's form."""
    from mcp.types import Request

    request: Any = Request[dict[str, Any], str](method=method, params=params)
    return plain(await session.send_request(request, _Anything))


class _Listed:
    """What a list comes to, page by page.

    Args:
        method: The method of MCP that lists.
    """

    def __init__(self, method: str) -> None:
        self._method = method
        self._pages = self._bytes = 0

    def count(self, page: Any) -> None:
        """Count a page that another is to follow.

        Raises:
            Refused: That would be too many, or too much.
        """
        self._pages += 1
        self._bytes += len(to_json(page))
        if self._pages >= MAX_PAGES or self._bytes > MAX_LISTED_BYTES:
            raise Refused(
                f"the MCP server's answer to {self._method} has no end after {self._pages} pages, "
                f"{self._bytes} bytes; at most {MAX_PAGES} pages and {MAX_LISTED_BYTES} bytes of "
                "a list are taken"
            )


class SDKSpeaker:
    """Asks by a client of the official SDK: `mcp.Client`, or `ClientSession` before version 2."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        listed = _Listed("tools/list")
        while True:
            if sdk_version() >= 2:
                page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
                cursor = page.next_cursor
            else:
                page = await self._client.list_tools(cursor)
                cursor = page.nextCursor
            tools = [plain(tool) for tool in page.tools]
            found += tools
            if cursor is None:
                return found
            listed.count(tools)

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        call = self._client.call_tool if sdk_version() >= 2 else self._call_by_version_1
        return plain_result(await call(name, arguments, progress_callback=on_progress))

    async def _call_by_version_1(
        self, name: str, arguments: dict[str, Any], progress_callback: OnProgress | None
    ) -> Any:
        """Call a tool, and tell the server if the call is cancelled, as version 2 does itself."""
        import anyio
        from mcp import types as declared

        types: Any = declared
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        request = types.ClientRequest(types.CallToolRequest(params=params))
        number = self._client._request_id  # which the next request is given, before it is sent
        try:
            return await self._client.send_request(
                request, types.CallToolResult, progress_callback=progress_callback
            )
        except asyncio.CancelledError:
            told = types.CancelledNotification(
                params=types.CancelledNotificationParams(requestId=number)
            )
            with anyio.move_on_after(TELL_LIMIT_S, shield=True), contextlib.suppress(Exception):
                await self._client.send_notification(types.ClientNotification(told))
            raise

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        session = self._client.session if sdk_version() >= 2 else self._client
        return await ask_session(session, method, params)


def plain(model: Any) -> dict[str, Any]:
    """A model of the SDK in the wire's form."""
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def plain_result(result: Any) -> dict[str, Any]:
    """The result of a call, in the wire's form, of either version of the SDK."""
    found = _told(plain(result))
    return {"content": [], **found, "isError": bool(found.get("isError"))}


@contextlib.asynccontextmanager
async def speaker_of_sdk(target: Any, greeting: str | None = None) -> AsyncIterator[Speaker]:
    """Connect to an MCP server.

    Args:
        target: A server object of the SDK, to be called in this process; or a transport of the
            SDK, such as `stdio_client(...)` gives.
        greeting: How it is greeted, of the SDK's version 2: ``auto``, or ``legacy`` for the
            handshake of the revisions until 2025-11-25, which have sessions. By default a server
            object by the latter, which keeps what is noted in its session.
    """
    if "mcp" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "mcp")  # which takes half a second
    if sdk_version() >= 2:
        from mcp import Client

        is_transport = isinstance(target, AbstractAsyncContextManager)
        async with Client(
            target, mode=greeting or ("auto" if is_transport else "legacy")
        ) as client:
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
    """A connection to an MCP server, opened when it is first needed, and never again.

    It is of the event loop on which it was opened.

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
        self._under_way: set[Any] = set()  # the cancel scopes of calls
        self._is_closed = False
        self._wrapping: dict[str, bool] | None = None

    async def open(self) -> Speaker:
        """Connect, unless it is connected.

        Raises:
            ConnectionBroken: It cannot be reached, or the connection has ended.
        """
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise ConnectionBroken(f"the connection to {self._name} has been closed")
        if self._ready is None:
            self._ready = loop.create_future()
            self._owner = asyncio.ensure_future(self._own(self._ready))
        if self._ready.get_loop() is not loop:
            raise ConnectionBroken(
                f"{self._name} was connected to on another event loop, and is used from that one "
                "only"
            )
        done, _ = await asyncio.wait([self._ready], timeout=self._connect_timeout_s)
        if not done:
            raise ConnectionBroken(
                f"{self._name} did not answer within {self._connect_timeout_s:g} s"
            )
        assert self._owner is not None
        error = self._ready.exception()
        if isinstance(error, ConnectionBroken):
            raise ConnectionBroken(str(error)) from error
        if error is not None:
            raise ConnectionBroken(f"{self._name}: {_words(error)}") from error
        speaker = self._ready.result()
        if self._owner.done():
            raise ConnectionBroken(f"the connection to {self._name} has ended")
        return speaker

    async def _own(self, ready: asyncio.Future[Speaker]) -> None:
        try:
            async with self._open_speaker() as speaker:
                ready.set_result(speaker)
                try:
                    await self._over.wait()
                finally:
                    for scope in self._under_way:
                        scope.cancel()
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(ConnectionBroken(f"{self._name} was closed"))
                ready.exception()
            raise
        except Exception as error:
            if not ready.done():  # and otherwise it broke as it was left
                ready.set_exception(error)
                ready.exception()  # that nobody may have waited for

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """While the server is asked something: that ends with the connection."""
        import anyio

        scope = anyio.CancelScope()
        self._under_way.add(scope)
        try:
            with _broken(self._name), scope:
                yield
        finally:
            self._under_way.discard(scope)
        if scope.cancelled_caught:
            raise ConnectionBroken(f"the connection to {self._name} has ended")

    async def tools(self) -> list[dict[str, Any]]:
        """The server's tools, in the wire's form."""
        speaker = await self.open()
        with self._asking():
            found = await speaker.tools()
        self._wrapping = {
            tool["name"]: bool((tool.get("outputSchema") or {}).get("x-fastmcp-wrap-result"))
            for tool in found
        }
        return found

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
        speaker = await self.open()
        with self._asking():
            try:
                result = await speaker.call(name, dict(arguments), on_progress)
            except Exception as error:
                if code_of(error) == INVALID_PARAMS:
                    raise InvalidToolArguments(str(error)) from error
                raise
        if self._wrapping[name] and "structuredContent" in result:
            result["_meta"] = {**(result.get("_meta") or {}), **WRAPPED}
        return result

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask what is asked by neither `tools` nor `call`, such as ``resources/list``.

        Args:
            method: The method of MCP. Of one that lists, all pages are asked for.
            params: Its parameters, in the wire's form.

        Raises:
            ServerRefused: The server answered with an error.
            ConnectionBroken: The server is gone.
        """
        speaker = await self.open()
        with self._asking():
            result = page = _told(await speaker.ask(method, dict(params)))
            listed = _Listed(method)
            while True:
                if page.get("nextCursor") is None:
                    result.pop("nextCursor", None)
                    return result
                listed.count(page)
                asked = {**params, "cursor": page["nextCursor"]}
                page = _told(await speaker.ask(method, asked))
                for name, found in page.items():
                    if isinstance(found, list):
                        result[name] = [*result.get(name, ()), *found]

    async def aclose(self) -> None:
        """Disconnect, and end a process that was started for it; from any event loop."""
        self._is_closed = True
        owner, ready = self._owner, self._ready
        if owner is None or ready is None or owner.done():
            return
        loop = ready.get_loop()
        if loop is not asyncio.get_running_loop():
            if loop.is_running():
                elsewhere = asyncio.run_coroutine_threadsafe(self.aclose(), loop)
                await asyncio.wrap_future(elsewhere)
            return  # otherwise it ends with its loop
        if ready.done():
            self._over.set()
        else:
            owner.cancel()
        _, late = await asyncio.wait([owner], timeout=CLOSE_LIMIT_S)
        for task in late:
            task.cancel()


OF_ONE_HOP = ("resultType", "ttlMs", "cacheScope")  # what a server says of its answer, not in it


def _told(result: dict[str, Any]) -> dict[str, Any]:
    """What an answer holds, without what is between its server and whoever asked."""
    meta = result.get("_meta")
    if meta is not None and meta.pop(SERVER_INFO, None) and not meta:
        del result["_meta"]
    return {name: value for name, value in result.items() if name not in OF_ONE_HOP}


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
        refused = getattr(error, "error", None)  # MCPError; McpError before version 2
        if isinstance(getattr(refused, "code", None), int):
            assert refused is not None
            raise ServerRefused(refused.code, refused.message, refused.data) from error
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
