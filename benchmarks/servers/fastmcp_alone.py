"""The tool of `mcp_environment.py` on FastMCP's own server, without any environment."""

from typing import Any

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse

server: FastMCP[Any] = FastMCP("echo")


@server.tool
def echo_message(message: str) -> str:
    """Echo back the message."""
    return message


@server.custom_route("/health", methods=["GET"])
async def health(request: Request) -> JSONResponse:
    return JSONResponse({"status": "healthy"})


app = server.http_app(path="/mcp")
