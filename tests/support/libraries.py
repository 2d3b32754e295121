"""Environments that are made of MCP servers, which have more than tools."""

from __future__ import annotations

from typing import Any

import fastmcp
from mcp.server.mcpserver import MCPServer
from mcp_types import Completion, CompletionArgument

from openenv.tools import MCPEnvironment


def furnished(server: Any) -> Any:
    """Give a server, of FastMCP or of the official SDK, resources and prompts."""

    def rules() -> str:
        """What is allowed here."""
        return "Be quiet."

    def shelf(number: str) -> str:
        """What stands on a shelf."""
        return f"Books from {number}"

    def lend(title: str) -> str:
        """Lend a book."""
        return f"Lend me {title}."

    def borrow() -> str:
        """Borrow a map."""
        return "Borrow a map."

    def open_annex() -> str:
        """Have more of everything."""
        server.resource("library://annex", mime_type="text/plain")(lambda: "Maps.")
        server.prompt()(borrow)
        return "It is open."

    server.resource("library://rules", mime_type="text/plain")(rules)
    server.resource("library://shelf/{number}", mime_type="text/plain")(shelf)
    server.prompt()(lend)
    server.tool()(open_annex)
    return server


class FastLibrary(MCPEnvironment):
    """A library, by FastMCP."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__(furnished(fastmcp.FastMCP("library")))


class Library(MCPEnvironment):
    """A library, by the official SDK."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server: MCPServer[Any] = furnished(MCPServer("library"))

        @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
        async def complete(ref: Any, argument: CompletionArgument, context: Any) -> Completion:
            titles = [one for one in ("Emma", "Evelina") if one.startswith(argument.value)]
            return Completion(values=titles, total=len(titles), has_more=False)

        super().__init__(server)


class Tasked(MCPEnvironment):
    """An environment whose server has a prompt of the name of ours."""

    def __init__(self) -> None:
        server = fastmcp.FastMCP("tasked")

        @server.prompt()
        def task() -> str:
            """What to do."""
            return "Do as the author says."

        super().__init__(server)
