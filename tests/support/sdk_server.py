"""An MCP server as its authors write them: of the official SDK, or (``fastmcp``) of FastMCP."""

from __future__ import annotations

import os
import sys
from typing import Any

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c63"
    "6000000002000148afa4710000000049454e44ae426082"
)


def made(kind: str) -> Any:
    """A server with a tally, a picture, and a tool that fails."""
    if kind == "fastmcp":
        from fastmcp import FastMCP
        from fastmcp.utilities.types import Image

        server: Any = FastMCP("tally")
    else:
        from mcp.server.mcpserver import Image, MCPServer  # type: ignore[assignment]

        server = MCPServer("tally")
    tally = {"sum": 0}

    @server.tool(title="Add", annotations={"destructiveHint": True} if kind == "fastmcp" else None)
    def add(n: int) -> dict[str, int]:
        """Add to the tally."""
        tally["sum"] += n
        return tally

    @server.tool()
    def word(text: str) -> str:
        """Give a text back."""
        return text

    @server.tool()
    def picture() -> Any:
        """Show a pixel."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    @server.tool()
    def pid() -> int:
        """The process."""
        return os.getpid()

    @server.tool()
    def close() -> str:
        """A tool that no agent may have."""
        return "closed"

    return server


if __name__ == "__main__":
    made(sys.argv[1]).run()
