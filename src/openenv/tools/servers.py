"""MCP server objects in this process: FastMCP (2, 3 and 4) and the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import CodeType
from typing import Any, Protocol

from openenv.tools.connections import (
    ConnectionBroken,
    MCPClient,
    MCPConnection,
    SDKClient,
    ask_session,
    connect_sdk,
    dump_model,
    dump_result,
    sdk_version,
)
from openenv.tools.functions import InvalidToolArguments, UnknownTool
from openenv.tools.progress import OnProgress
from openenv.tools.results import build_failure
from openenv.types import public_schema

logger = logging.getLogger(__name__)

NAME = "the environment's MCP server"
DEFAULT_MIDDLEWARE = "fastmcp.server.middleware.dereference"  # added by FastMCP itself


class ServerTools(Protocol):
    """The interface of an MCP server's tools for an environment."""

    async def tools(self) -> list[dict[str, Any]]:
        """List the tools, in MCP's form."""
        ...

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Call a tool and return the result in MCP's form.

        Raises:
            UnknownTool: There is no tool of that name.
            InvalidToolArguments: The tool does not accept these arguments.
        """
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request for something other than tools; see `MCPConnection.ask`."""
        ...

    async def known_tools(self) -> list[dict[str, Any]]:
        """List the tools that are known without a connection."""
        ...

    async def aclose(self) -> None:
        """Release the server."""
        ...


def open_server_tools(server: Any) -> ServerTools:
    """Return the tools of a server object.

    Raises:
        TypeError: The object is not an MCP server.
    """
    packages = _packages(server)
    if "fastmcp" in packages:
        return FastMCPTools(server)
    if "mcp" in packages:
        return SDKTools(server)
    raise TypeError(
        f"{type(server).__name__} is no MCP server; expected one of FastMCP or of the official SDK "
        "(mcp), or mark methods of the class by @openenv.tools.tool"
    )


class ConnectedTools(ServerTools):
    """The tools of a server in this process, with a connection for each event loop that uses it."""

    def __init__(
        self, server: Any, open_client: Callable[[Any], AbstractAsyncContextManager[MCPClient]]
    ) -> None:
        self._server = server
        self._open_client = functools.partial(open_client, server)
        self._connections: dict[asyncio.AbstractEventLoop, MCPConnection] = {}
        self._is_closed = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionBroken(f"{NAME} was released: the environment has been closed")

    def _connection(self) -> MCPConnection:
        """Return the connection of the running event loop.

        Raises:
            ConnectionBroken: The tools have been closed.
        """
        self._check_open()
        loop, known = asyncio.get_running_loop(), self._connections
        if loop not in known:
            self._connections = {one: kept for one, kept in known.items() if not one.is_closed()}
            self._connections[loop] = MCPConnection(self._open_client, NAME)
        return self._connections[loop]

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._connection().ask(method, params)

    async def aclose(self) -> None:
        self._is_closed = True
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.aclose()


class SDKTools(ConnectedTools):
    """The tools of a server of the official SDK."""

    def __init__(self, server: Any) -> None:
        super().__init__(server, connect_sdk)

    async def tools(self) -> list[dict[str, Any]]:
        return _without_private(await self._connection().tools())

    async def known_tools(self) -> list[dict[str, Any]]:
        # A server of the SDK's low-level API lists its tools to clients only.
        if not inspect.iscoroutinefunction(getattr(self._server, "list_tools", None)):
            return []
        return _without_private([dump_model(tool) for tool in await self._server.list_tools()])

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        return await self._connection().call(name, arguments, on_progress)


def _without_private(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check that no tool returns private fields, and return the tools.

    Raises:
        TypeError: A tool returns a model with private fields, which the server would expose.
    """
    for tool in tools:
        output = tool.get("outputSchema")
        if output is not None and public_schema(output) != output:
            raise TypeError(
                f"the tool {tool['name']!r} returns a model with private fields, which its MCP "
                "server would show to agents; have it return openenv.public_view(model), or mark "
                "it by @openenv.tools.tool"
            )
    return tools


def is_server(value: Any) -> bool:
    """Return whether a value is an MCP server object."""
    return not _packages(value).isdisjoint(("fastmcp", "mcp"))


def _packages(value: Any) -> set[str]:
    return {cls.__module__.partition(".")[0] for cls in type(value).__mro__}


class FastMCPTools(ConnectedTools):
    """The tools of a FastMCP server.

    A tool that needs no MCP session is called directly, which takes a fifth of the time. A tool
    that uses FastMCP's `Context` is called through FastMCP's client, and so is every tool of a
    FastMCP 2 server or of a server with custom middleware.
    """

    def __init__(self, server: Any) -> None:
        super().__init__(server, _connect_fastmcp)
        self._has_direct_calls = hasattr(server, "call_tool")
        self._needs_session: dict[str, tuple[Any, bool]] = {}

    async def tools(self) -> list[dict[str, Any]]:
        if self._has_direct_calls:
            found = [tool.to_mcp_tool() for tool in await self._server.list_tools()]
        else:
            registered = await self._server.get_tools()
            found = [tool.to_mcp_tool(name=name) for name, tool in registered.items()]
        return _without_private([dump_model(tool) for tool in found])

    async def known_tools(self) -> list[dict[str, Any]]:
        return await self.tools()

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        self._check_open()
        tool = await self._tool(name)
        if not self._has_direct_calls or self._wants_session(name, tool):
            return await self._connection().call(name, arguments, on_progress)
        return await self._call_directly(name, tool, dict(arguments))

    async def _tool(self, name: str) -> Any:
        from fastmcp.exceptions import NotFoundError

        try:
            tool = await self._server.get_tool(name)
        except NotFoundError:
            tool = None
        if tool is None:
            raise UnknownTool(f"Unknown tool: {name!r}")
        return tool

    def _wants_session(self, name: str, tool: Any) -> bool:
        middleware = getattr(self._server, "middleware", ())
        if any(type(one).__module__ != DEFAULT_MIDDLEWARE for one in middleware):
            return True
        function = getattr(tool, "fn", None)
        known, wants = self._needs_session.get(name, (None, True))
        if known is not function or function is None:
            wants = function is None or _mentions_context(function)
            self._needs_session[name] = function, wants
        return wants

    async def _call_directly(
        self, name: str, tool: Any, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        from fastmcp.exceptions import ToolError, ValidationError
        from pydantic import ValidationError as PydanticValidationError

        # The server's call adds middleware, context and spans, which take about 0.15 ms and are not
        # needed here.
        is_plain = type(tool).__name__ == "FunctionTool" and tool.timeout is None
        is_strict = getattr(self._server, "strict_input_validation", True)
        try:
            if is_plain and not is_strict:
                result = await self._run(tool, arguments)
            else:
                result = await self._server.call_tool(name, arguments)
        except (ValidationError, PydanticValidationError) as error:
            raise InvalidToolArguments(str(error)) from None
        except ToolError as error:
            return build_failure(str(error))
        found: dict[str, Any] = {"content": [dump_model(block) for block in result.content]}
        if result.structured_content is not None:
            found["structuredContent"] = result.structured_content
        if result.meta:
            found["_meta"] = result.meta
        return {**found, "isError": bool(getattr(result, "is_error", False))}

    async def _run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        """Run a function like the server's own call, with the same messages for failures."""
        from fastmcp.exceptions import FastMCPError, ToolError
        from pydantic import ValidationError as PydanticValidationError

        try:
            return await tool.run(arguments)
        except (FastMCPError, PydanticValidationError):
            raise
        except Exception as error:
            logger.exception("Error calling tool %r", tool.name)
            is_masked = getattr(self._server, "_mask_error_details", True)
            why = "" if is_masked else f": {error}"
            raise ToolError(f"Error calling tool {tool.name!r}{why}") from error


def _mentions_context(function: Callable[..., Any]) -> bool:
    """Return whether a function may use FastMCP's context, by a parameter or in its code."""
    function = inspect.unwrap(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return _asks_for_context(function, set()) or any(
        "Context" in str(parameter.annotation)
        or type(parameter.default).__module__.partition(".")[0]
        not in ("builtins", "inspect", "pydantic", "datetime", "pathlib", "enum")
        for parameter in parameters
    )


def _asks_for_context(function: Any, seen: set[CodeType]) -> bool:
    """Return whether the code of a function, or of functions named there, uses a context."""
    owner = type(getattr(function, "__self__", None))
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    if code in seen:
        return False
    seen.add(code)
    names = {name for part in _nested_codes(code) for name in part.co_names}
    if any("context" in name.lower() for name in names):
        return True
    named = [function.__globals__.get(name) or getattr(owner, name, None) for name in names]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            named.append(cell.cell_contents)
    return any(_asks_for_context(one, seen) for one in named if hasattr(one, "__code__"))


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Iterate over a code object and the functions defined inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


class _FastMCPClient:
    """A client based on the client of FastMCP 4."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        return [dump_model(tool) for tool in await self._client.list_tools()]

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        result = await self._client.call_tool_mcp(
            name=name, arguments=arguments, progress_handler=on_progress
        )
        return dump_result(result)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await ask_session(self._client.session, method, params)


def fastmcp_client(server: Any) -> Any:
    """Return a FastMCP client for a server in this process.

    The client uses a revision of MCP that has sessions, so that a tool's session state lasts as
    long as the environment.
    """
    from fastmcp import Client

    # The newest revision has no sessions: state set by `Context.set_state` would be lost after each
    # call.
    return Client(server) if sdk_version() < 2 else Client(server, mode="legacy")


@contextlib.asynccontextmanager
async def _connect_fastmcp(server: Any) -> AsyncIterator[MCPClient]:
    await asyncio.to_thread(importlib.import_module, "fastmcp.client")  # takes a second
    async with fastmcp_client(server) as client:
        yield _FastMCPClient(client) if sdk_version() >= 2 else SDKClient(client.session)
