"""Client connections to MCP servers, through version 1 or 2 of the official SDK.

Invariants:

- The SDK's clients must be entered and left by the same task, so each connection has an owner task
  (`MCPConnection._own`) that holds the client open. Calls come from any task of the same event
  loop.
- Each call runs in a cancel scope of its own. When the connection ends, the owner cancels all of
  them, so that no caller waits for an answer that cannot come.
- `aclose` may be called from any event loop; it runs on the owner's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import metadata
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from openenv.errors import OpenEnvError, Refused
from openenv.tools.functions import InvalidToolArguments, UnknownTool
from openenv.tools.progress import OnProgress
from openenv.tools.results import WRAPPED

# Limits of a list, for servers whose pages never end. All pages together may be as large as one
# message.
MAX_PAGES, MAX_LISTED_BYTES = 1000, 64 * 2**20
CLOSE_LIMIT_S, TELL_LIMIT_S = 10.0, 1.0
INVALID_PARAMS = -32602  # of JSON-RPC
# Texts of errors for a lost connection (SDK) or an unknown session (servers).
GONE = ("Connection closed", "Session terminated", "Session not found")
SERVER_INFO = "io.modelcontextprotocol/serverInfo"  # added by servers to each result


class ConnectionBroken(OpenEnvError, ConnectionError):
    """An MCP server cannot be reached, or the connection has ended."""


class ServerRefused(Refused):
    """An error that an MCP server answered with; `code` is a code of JSON-RPC or MCP."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code, self.message, self.data = code, message, data
        super().__init__(code, message, data)

    def __str__(self) -> str:
        return self.message


@functools.cache
def sdk_version() -> int:
    """Return the major version of the official SDK, the package `mcp`.

    Raises:
        ModuleNotFoundError: The SDK is not installed.
    """
    try:
        return int(metadata.version("mcp").partition(".")[0])
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            "the official MCP SDK is needed: pip install 'mcp>=2'", name="mcp"
        ) from None


class MCPClient(Protocol):
    """The interface of a connected client of an MCP server. Values have MCP's JSON form."""

    async def tools(self) -> list[dict[str, Any]]:
        """List the server's tools."""
        ...

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        """Call a tool and return its result."""
        ...

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send any other request and return the result."""
        ...


class _Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


async def ask_session(session: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request through an SDK `ClientSession` and return the result in MCP's form."""
    from mcp.types import Request

    request: Any = Request[dict[str, Any], str](method=method, params=params)
    return dump_model(await session.send_request(request, _Anything))


class _ListLimit:
    """A limit on the pages and bytes of a list that an MCP method reads page by page."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._pages = self._bytes = 0

    def count(self, page: Any) -> None:
        """Count a page that is followed by another.

        Raises:
            Refused: The list is too long.
        """
        self._pages += 1
        self._bytes += len(to_json(page))
        if self._pages >= MAX_PAGES or self._bytes > MAX_LISTED_BYTES:
            raise Refused(
                f"the MCP server's answer to {self._method} does not end after {self._pages} "
                f"pages, {self._bytes} bytes; at most {MAX_PAGES} pages and {MAX_LISTED_BYTES} "
                "bytes of a list are read"
            )


class SDKClient:
    """A client based on the official SDK: `mcp.Client`, or `ClientSession` before version 2."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        listed = _ListLimit("tools/list")
        while True:
            if sdk_version() >= 2:
                page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
                cursor = page.next_cursor
            else:
                page = await self._client.list_tools(cursor)
                cursor = page.nextCursor
            tools = [dump_model(tool) for tool in page.tools]
            found += tools
            if cursor is None:
                return found
            listed.count(tools)

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        call = self._client.call_tool if sdk_version() >= 2 else self._call_by_version_1
        return dump_result(await call(name, arguments, progress_callback=on_progress))

    async def _call_by_version_1(
        self, name: str, arguments: dict[str, Any], progress_callback: OnProgress | None
    ) -> Any:
        """Call a tool and notify the server of a cancellation, as version 2 does itself."""
        import anyio

        types: Any = importlib.import_module("mcp").types
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        request = types.ClientRequest(types.CallToolRequest(params=params))
        number = self._client._request_id  # the id of the next request
        try:
            return await self._client.send_request(
                request, types.CallToolResult, progress_callback=progress_callback
            )
        except asyncio.CancelledError:
            params = types.CancelledNotificationParams(requestId=number)
            notice = types.ClientNotification(types.CancelledNotification(params=params))
            with anyio.move_on_after(TELL_LIMIT_S, shield=True), contextlib.suppress(Exception):
                await self._client.send_notification(notice)
            raise

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        session = self._client.session if sdk_version() >= 2 else self._client
        return await ask_session(session, method, params)


def dump_model(model: Any) -> dict[str, Any]:
    """Convert a model of the SDK to MCP's JSON form."""
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def dump_result(result: Any) -> dict[str, Any]:
    """Convert the result of a tool call, from either version of the SDK, to MCP's form."""
    found = _strip_hop_fields(dump_model(result))
    return {"content": [], **found, "isError": bool(found.get("isError"))}


@contextlib.asynccontextmanager
async def connect_sdk(target: Any, greeting: str | None = None) -> AsyncIterator[MCPClient]:
    """Connect to an MCP server.

    Args:
        target: A server object of the SDK, which is called in this process; or a transport of the
            SDK, such as the result of `stdio_client(...)`.
        greeting: The handshake of SDK version 2: ``auto``, or ``legacy`` for the revisions until
            2025-11-25, which have sessions. By default ``legacy`` for a server object, so that what
            tools store in the session lasts, and ``auto`` for a transport.
    """
    if "mcp" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "mcp")  # takes half a second
    if sdk_version() >= 2:
        from mcp import Client

        is_transport = isinstance(target, AbstractAsyncContextManager)
        async with Client(
            target, mode=greeting or ("auto" if is_transport else "legacy")
        ) as client:
            yield SDKClient(client)
        return
    from mcp import ClientSession
    from mcp.shared import memory

    if not isinstance(target, AbstractAsyncContextManager):
        server = getattr(target, "_mcp_server", target)
        connect = getattr(memory, "create_connected_server_and_client_session")  # noqa: B009
        async with connect(server) as session:
            yield SDKClient(session)
        return
    async with target as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield SDKClient(session)


class MCPConnection:
    """A connection to an MCP server that opens on first use and never reopens.

    It belongs to the event loop on which it was opened.

    Args:
        open_client: Function that opens the connection.
        name: The server's name in messages.
        connect_timeout_s: Time limit for connecting, in seconds.
    """

    def __init__(
        self,
        open_client: Callable[[], AbstractAsyncContextManager[MCPClient]],
        name: str = "the MCP server",
        connect_timeout_s: float = 60.0,
    ) -> None:
        self._open_client = open_client
        self._name = name
        self._connect_timeout_s = connect_timeout_s
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[MCPClient] | None = None
        self._over = asyncio.Event()
        self._under_way: set[Any] = set()  # the cancel scopes of calls
        self._is_closed = False
        self._wrapping: dict[str, bool] | None = None

    async def open(self) -> MCPClient:
        """Connect if necessary and return the client.

        Raises:
            ConnectionBroken: The server cannot be reached, or the connection has ended.
        """
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise ConnectionBroken(f"the connection to {self._name} has been closed")
        if self._ready is None:
            self._ready = loop.create_future()
            self._owner = asyncio.ensure_future(self._own(self._ready))
        if self._ready.get_loop() is not loop:
            raise ConnectionBroken(
                f"{self._name} belongs to another event loop and can only be used from that loop"
            )
        done, _ = await asyncio.wait([self._ready], timeout=self._connect_timeout_s)
        if not done:
            seconds = f"{self._connect_timeout_s:g} s"
            raise ConnectionBroken(f"{self._name} did not answer within {seconds}")
        assert self._owner is not None
        error = self._ready.exception()
        if error is not None:
            is_told = isinstance(error, ConnectionBroken)
            why = str(error) if is_told else f"{self._name}: {_describe_error(error)}"
            raise ConnectionBroken(why) from error
        client = self._ready.result()
        if self._owner.done():
            raise ConnectionBroken(f"the connection to {self._name} has ended")
        return client

    async def _own(self, ready: asyncio.Future[MCPClient]) -> None:
        try:
            async with self._open_client() as client:
                ready.set_result(client)
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
            if not ready.done():  # otherwise the error arose while closing
                ready.set_exception(error)
                ready.exception()  # retrieved, since there may be no waiter

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Cancel the enclosed request when the connection ends."""
        import anyio

        scope = anyio.CancelScope()
        self._under_way.add(scope)
        try:
            with _translate_errors(self._name), scope:
                yield
        finally:
            self._under_way.discard(scope)
        if scope.cancelled_caught:
            raise ConnectionBroken(f"the connection to {self._name} has ended")

    async def tools(self) -> list[dict[str, Any]]:
        """List the server's tools, in MCP's form."""
        client = await self.open()
        with self._asking():
            found = await client.tools()
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
            UnknownTool: The server has no tool of that name.
            InvalidToolArguments: The tool does not accept these arguments.
            ConnectionBroken: The connection has ended.
        """
        if self._wrapping is None or name not in self._wrapping:
            await self.tools()
        assert self._wrapping is not None
        if name not in self._wrapping:
            raise UnknownTool(f"Unknown tool: {name!r}")
        client = await self.open()
        with self._asking():
            try:
                result = await client.call(name, dict(arguments), on_progress)
            except Exception as error:
                if error_code(error) == INVALID_PARAMS:
                    raise InvalidToolArguments(str(error)) from error
                raise
        if self._wrapping[name] and "structuredContent" in result:
            result["_meta"] = {**(result.get("_meta") or {}), **WRAPPED}
        return result

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request other than a list or call of tools, such as ``resources/list``.

        Args:
            method: The MCP method. All pages of a list are read.
            params: The parameters, in MCP's form.

        Raises:
            ServerRefused: The server answered with an error.
            Refused: A list is too long.
            ConnectionBroken: The connection has ended.
        """
        client = await self.open()
        with self._asking():
            result = page = _strip_hop_fields(await client.ask(method, dict(params)))
            listed = _ListLimit(method)
            while page.get("nextCursor") is not None:
                listed.count(page)
                asked = {**params, "cursor": page["nextCursor"]}
                page = _strip_hop_fields(await client.ask(method, asked))
                for name, found in page.items():
                    if isinstance(found, list):
                        result[name] = [*result.get(name, ()), *found]
            result.pop("nextCursor", None)
        return result

    async def aclose(self) -> None:
        """Disconnect and end a process that was started for the connection; from any event loop."""
        self._is_closed = True
        owner, ready = self._owner, self._ready
        if owner is None or ready is None or owner.done():
            return
        loop = ready.get_loop()
        if loop is not asyncio.get_running_loop():
            if loop.is_running():
                elsewhere = asyncio.run_coroutine_threadsafe(self.aclose(), loop)
                await asyncio.wrap_future(elsewhere)
            return  # otherwise the connection ends with its loop
        if ready.done():
            self._over.set()
        else:
            owner.cancel()
        _, late = await asyncio.wait([owner], timeout=CLOSE_LIMIT_S)
        for task in late:
            task.cancel()


# Fields about the answer itself, meant for the direct client only.
OF_ONE_HOP = ("resultType", "ttlMs", "cacheScope")


def _strip_hop_fields(result: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without the fields that concern only the server and its direct client."""
    meta = result.get("_meta")
    if meta is not None and meta.pop(SERVER_INFO, None) and not meta:
        del result["_meta"]
    return {name: value for name, value in result.items() if name not in OF_ONE_HOP}


@contextlib.contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Convert the exceptions of a lost connection to `ConnectionBroken`."""
    import anyio

    try:
        yield
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, EOFError, OSError) as error:
        if isinstance(error, ConnectionBroken | TimeoutError):
            raise
        raise ConnectionBroken(f"{name} is gone ({_describe_error(error)})") from error
    except Exception as error:
        if any(words in str(error) for words in GONE):
            raise ConnectionBroken(f"{name} is gone ({_describe_error(error)})") from error
        refused = getattr(error, "error", None)  # MCPError; McpError before version 2
        if isinstance(getattr(refused, "code", None), int):
            assert refused is not None
            raise ServerRefused(refused.code, refused.message, refused.data) from error
        raise


def _first_error(error: BaseException) -> BaseException:
    """Return an exception, or the first exception of a group."""
    while isinstance(getattr(error, "exceptions", None), tuple):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error


def error_code(error: BaseException) -> int | None:
    """Return the JSON-RPC code of an SDK exception for a server's error answer, or None."""
    code = getattr(getattr(_first_error(error), "error", None), "code", None)
    return code if isinstance(code, int) else None


def _describe_error(error: BaseException) -> str:
    """Return the type and text of an exception, or of the first in a group."""
    error = _first_error(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
