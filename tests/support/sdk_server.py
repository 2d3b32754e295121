"""An MCP server as its authors write them: of the official SDK, or of FastMCP.

    python sdk_server.py {sdk,fastmcp} [PORT]

It speaks by standard input and output, or by Streamable HTTP on a port.
"""

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
    server: Any
    image: Any
    if kind == "fastmcp":
        from fastmcp import FastMCP
        from fastmcp.utilities.types import Image

        server, image = FastMCP("tally"), Image
    else:
        from mcp.server.mcpserver import Image as SDKImage
        from mcp.server.mcpserver import MCPServer

        server, image = MCPServer("tally"), SDKImage
    tally = {"sum": 0}

    def add(n: int) -> dict[str, int]:
        """Add to the tally."""
        tally["sum"] += n
        return tally

    def word(text: str) -> str:
        """Give a text back."""
        return text

    def picture() -> Any:
        """Show a pixel."""
        return image(data=PIXEL, format="png")

    def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    def pid() -> int:
        """The process."""
        return os.getpid()

    def close() -> str:
        """A tool that no agent may have."""
        return "closed"

    hints: Any = {"destructiveHint": True}
    if kind != "fastmcp":
        from mcp.types import ToolAnnotations

        hints = ToolAnnotations(destructive_hint=True)
    server.tool(title="Add", annotations=hints)(add)
    for function in (word, picture, fail, pid, close):
        server.tool()(function)
    return server


if __name__ == "__main__":
    kind, *port = sys.argv[1:]
    if port:
        made(kind).run("streamable-http", host="127.0.0.1", port=int(port[0]))
    else:
        made(kind).run()
