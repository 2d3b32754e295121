"""MCP servers as objects in this process: those of FastMCP (2, 3 and 4) and of the official SDK."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from openenv.mcp.connections import (
    Connection,
    OnProgress,
    Speaker,
    plain_result,
    speaker_of_sdk,
)
from openenv.mcp.functions import InvalidToolArguments, UnknownTool
from openenv.mcp.results import failure

__all__ = ["ServerTools", "fastmcp_client", "is_server", "tools_of_server"]


class ServerTools(Protocol):
    """The tools of one MCP server, as an environment uses them."""

    async def tools(self) -> list[dict[str, Any]]:
        """The tools, in the wire's form."""
        ...

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Call one; a result in the wire's form.

        Raises:
            UnknownTool: There is none of that name.
            InvalidToolArguments: It does not take these.
        """
        ...

    async def at_once(self) -> list[dict[str, Any]]:
        """The tools, as far as they are known without a connection."""
        ...

    async def aclose(self) -> None:
        """Let go of the server."""
        ...


def tools_of_server(server: Any) -> ServerTools:
    """The tools of a server object.

    Raises:
        TypeError: It is none that is known.
    """
    packages = _packages(server)
    if "fastmcp" in packages:
        return FastMCPTools(server)
    if "mcp" in packages:
        return Connection(functools.partial(speaker_of_sdk, server), "the environment's MCP server")
    raise TypeError(
        f"{type(server).__name__} is no MCP server; expected one of FastMCP or of the official SDK "
        "(mcp), or mark methods of the class by @openenv.mcp.tool"
    )


def is_server(value: Any) -> bool:
    """Whether a value is an MCP server as an object."""
    return not _packages(value).isdisjoint(("fastmcp", "mcp"))


def _packages(value: Any) -> set[str]:
    return {cls.__module__.partition(".")[0] for cls in type(value).__mro__}


class FastMCPTools:
    """The tools of a FastMCP server.

    A tool that needs no MCP session is called directly, which takes a fifth of the time. One that
    asks for FastMCP's `Context` is called by FastMCP's own client, and so is every tool of a server
    of FastMCP 2, and of one that has middleware of its own.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._has_direct_calls = hasattr(server, "call_tool")
        self._connection: Connection | None = None
        self._needs_session: dict[str, tuple[Any, bool]] = {}

    async def tools(self) -> list[dict[str, Any]]:
        if self._has_direct_calls:
            found = [tool.to_mcp_tool() for tool in await self._server.list_tools()]
        else:
            registered = await self._server.get_tools()
            found = [tool.to_mcp_tool(name=name) for name, tool in registered.items()]
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in found]

    async def at_once(self) -> list[dict[str, Any]]:
        return await self.tools()

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        tool = await self._tool(name)
        if not self._has_direct_calls or self._wants_session(name, tool):
            if self._connection is None:
                opened = functools.partial(_speaker_of_fastmcp, self._server)
                self._connection = Connection(opened, "the environment's MCP server")
            return await self._connection.call(name, arguments, on_progress)
        return await self._call_directly(name, dict(arguments))

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
        if len(getattr(self._server, "middleware", ())) > DEFAULT_MIDDLEWARE:
            return True
        function = getattr(tool, "fn", None)
        known, wants = self._needs_session.get(name, (None, True))
        if known is not function or function is None:
            wants = function is None or _mentions_context(function)
            self._needs_session[name] = function, wants
        return wants

    async def _call_directly(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        from fastmcp.exceptions import ToolError, ValidationError
        from pydantic import ValidationError as PydanticValidationError

        try:
            result = await self._server.call_tool(name, arguments)
        except (ValidationError, PydanticValidationError) as error:
            raise InvalidToolArguments(str(error)) from None
        except ToolError as error:
            return failure(str(error))
        plain: dict[str, Any] = {
            "content": [
                block.model_dump(mode="json", by_alias=True, exclude_none=True)
                for block in result.content
            ]
        }
        if result.structured_content is not None:
            plain["structuredContent"] = result.structured_content
        if result.meta:
            plain["_meta"] = result.meta
        return {**plain, "isError": bool(getattr(result, "is_error", False))}

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()


DEFAULT_MIDDLEWARE = 1  # which FastMCP puts there itself


def _mentions_context(function: Callable[..., Any]) -> bool:
    """Whether a function may ask FastMCP for its context, which knows the MCP session."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None or any("context" in name.lower() for name in code.co_names):
        return True
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(
        "Context" in str(parameter.annotation)
        or type(parameter.default).__module__.partition(".")[0]
        not in ("builtins", "inspect", "pydantic", "datetime", "pathlib", "enum")
        for parameter in parameters
    )


class _FastMCPSpeaker:
    """Asks by FastMCP's client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        found = await self._client.list_tools()
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in found]

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        result = await self._client.call_tool_mcp(
            name=name, arguments=arguments, progress_handler=on_progress
        )
        return plain_result(result)


def fastmcp_client(server: Any) -> Any:
    """FastMCP's own client of a server in this process."""
    from fastmcp import Client

    return Client(server)


@contextlib.asynccontextmanager
async def _speaker_of_fastmcp(server: Any) -> AsyncIterator[Speaker]:
    async with fastmcp_client(server) as client:
        yield _FastMCPSpeaker(client)
