"""An environment's tools for the agent inside it: an MCP server on loopback.

It speaks Streamable HTTP without sessions and answers each POST by JSON, which the specification
leaves to the server: `initialize`, `ping`, `tools/list` and `tools/call`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import uvicorn
from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope, Send

from openenv._redaction import redact
from openenv.errors import words
from openenv.harness.agents.errors import HarnessError
from openenv.mcp.functions import InvalidToolArguments, UnknownTool
from openenv.mcp.results import failure
from openenv.mcp.servers import tools_of_server
from openenv.mcp.types import JsonRpcErrorCode as Code

__all__ = ["HarnessMCPBridge", "OfferedTools", "build_bridge_server"]

PATH = "/mcp"
# Revisions of MCP that have the handshake; an agent that asks for another is offered the last.
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MAX_REQUEST_BYTES = 64 * 2**20
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


class OfferedTools(Protocol):
    """Tools that can be listed and called, in the forms of MCP's wire."""

    async def tools(self) -> list[dict[str, Any]]:
        """What there is: name, description, inputSchema and so on."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call one; a result in the wire's form.

        Raises:
            UnknownTool: There is none of that name.
            InvalidToolArguments: It does not take these.
        """
        ...


class RenamedTools:
    """The tools of an MCP server, some of them under other names.

    Args:
        offered: The tools.
        renames: The server's name of each tool that has another here, by that other name.
    """

    def __init__(self, offered: OfferedTools, renames: Mapping[str, str]) -> None:
        self._offered = offered
        self._original = dict(renames)

    async def tools(self) -> list[dict[str, Any]]:
        """What there is, by the names that are known here."""
        shown = {original: name for name, original in self._original.items()}
        found = await self._offered.tools()
        return [{**tool, "name": shown.get(tool["name"], tool["name"])} for tool in found]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call one, by the name that is known here."""
        if name not in self._original and name in self._original.values():
            raise UnknownTool(f"Unknown tool: {name!r}")
        return await self._offered.call(self._original.get(name, name), arguments)


async def build_bridge_server(mcp_server: Any, renames: Mapping[str, str]) -> OfferedTools:
    """An MCP server's tools for a `HarnessMCPBridge`, some of them under other names.

    Args:
        mcp_server: A server of FastMCP or of the official SDK, or `OfferedTools`.
        renames: The server's name of each tool that is to have another, by that other name.

    Raises:
        HarnessError: The server has no tool of such a name.
    """
    offered = offered_by(mcp_server)
    names = {tool["name"] for tool in await offered.tools()}
    missing = sorted(set(renames.values()) - names)
    if missing:
        raise HarnessError(
            f"renames: the MCP server has no tool {', '.join(map(repr, missing))}; it has "
            f"{', '.join(sorted(names)) or 'none'}. Write {{new name: the server's name}}"
        )
    return RenamedTools(offered, renames) if renames else offered


def offered_by(mcp_server: Any) -> OfferedTools:
    """The tools of a server, or what offers them already.

    Raises:
        TypeError: It is neither.
    """
    if callable(getattr(mcp_server, "tools", None)) and callable(getattr(mcp_server, "call", None)):
        offered: OfferedTools = mcp_server
        return offered
    return tools_of_server(mcp_server)


class HarnessMCPBridge:
    """Serves tools to an agent of this machine, on a thread and an event loop of its own.

    Args:
        mcp_server: A server of FastMCP or of the official SDK, or `OfferedTools`.
        host: The address that it is bound to; the port is one that is free.
    """

    def __init__(self, mcp_server: Any, host: str = "127.0.0.1") -> None:
        self._answering = _Answering(offered_by(mcp_server), host)
        self._host = host
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it is, such as ``http://127.0.0.1:40123/mcp``.

        Raises:
            HarnessError: It was not started.
        """
        if self._server is None:
            raise HarnessError("the bridge has no address yet: start it")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.port}{PATH}"

    def start(self, timeout_s: float = 10.0) -> str:
        """Serve; its URL.

        Raises:
            HarnessError: It is not up in that time.
        """
        if self._server is not None:
            return self.url
        server = _Server(self._answering, self._host)
        self._thread = threading.Thread(target=server.run, name="openenv-harness-mcp", daemon=True)
        self._thread.start()
        if not server.is_up.wait(timeout_s) or server.port == 0:
            server.should_exit = True
            raise HarnessError(
                f"the tools could not be served on {self._host} within {timeout_s:g} s"
            )
        self._server = server
        return self.url

    def stop(self, timeout_s: float = 5.0) -> None:
        """Serve no more. Calls that are under way are cut. Safe to repeat."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        server.end()
        self._thread.join(timeout_s)


class _Server(uvicorn.Server):
    """uvicorn on a thread, which says when it is up and ends when told to."""

    def __init__(self, app: Any, host: str) -> None:
        config = uvicorn.Config(
            app, host=host, port=0, log_config=None, access_log=False, lifespan="off", ws="none"
        )
        super().__init__(config)
        self.is_up = threading.Event()
        self.port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None

    def run(self, sockets: Any = None) -> None:
        try:
            asyncio.run(self.serve(sockets=sockets))
        finally:
            self.is_up.set()

    async def serve(self, sockets: Any = None) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        await self._serve(sockets)  # `serve` would take over the process's signals

    async def main_loop(self) -> None:
        assert self._ending is not None
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.is_up.set()
        await self.on_tick(0)
        await self._ending.wait()
        self.force_exit = True  # agents keep their connections open

    def end(self) -> None:
        """Have it end, from any thread."""
        if self._loop is not None and self._ending is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._ending.set)


class _Answering:
    """The ASGI application: MCP's messages in, answers out."""

    def __init__(self, offered: OfferedTools, host: str) -> None:
        self._offered = offered
        self._hosts = LOOPBACK | {host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, answer = await self._answered(scope, receive)
        body = b"" if answer is None else to_json(answer, inf_nan_mode="null", fallback=str)
        headers = [(b"content-type", b"application/json")] if body else []
        if status == 405:
            headers.append((b"allow", b"POST"))
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, Any]:
        if scope["path"].rstrip("/") != PATH:
            return 404, None
        if not self._is_local(scope):  # a page in a browser of this machine (DNS rebinding)
            return 403, _error(
                None, Code.INVALID_REQUEST, "only programs of this machine are served"
            )
        if scope["method"] != "POST":
            return 405, None
        body = await _body(receive)
        if body is None:
            return 413, _error(None, Code.INVALID_REQUEST, f"over {MAX_REQUEST_BYTES} bytes")
        try:
            message = from_json(body)
        except ValueError as error:
            return 400, _error(None, Code.PARSE_ERROR, f"Parse error: {error}")
        if isinstance(message, list):
            answers = [a for a in [await self._answer(one) for one in message] if a is not None]
            return (200, answers) if answers else (202, None)
        answer = await self._answer(message)
        return (202, None) if answer is None else (200, answer)

    def _is_local(self, scope: Scope) -> bool:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin", "").partition("://")[2]
        return all(_name(one) in self._hosts for one in (headers.get(b"host", ""), origin) if one)

    async def _answer(self, message: Any) -> dict[str, Any] | None:
        """The answer to one message; None to one that takes none."""
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return _error(None, Code.INVALID_REQUEST, "Invalid request: expected JSON-RPC 2.0")
        method, number = message.get("method"), message.get("id")
        if number is None or method is None:  # a notification, or an answer
            return None
        params = message.get("params")
        try:
            result = await self._result(method, params if isinstance(params, dict) else {})
        except UnknownTool as error:
            return _error(number, Code.INVALID_PARAMS, words(error))
        except InvalidToolArguments as error:
            result = failure(words(error))  # the model can do better
        except LookupError:
            return _error(number, Code.METHOD_NOT_FOUND, f"Method not found: {method}")
        except Exception as error:
            return _error(number, Code.INTERNAL_ERROR, redact(words(error)))
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in REVISIONS else REVISIONS[-1],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "openenv", "version": "1"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": await self._offered.tools()}
        if method == "tools/call":
            name, arguments = params.get("name"), params.get("arguments") or {}
            if not isinstance(name, str) or not isinstance(arguments, dict):
                raise InvalidToolArguments("expected a name and an object of arguments")
            return await self._offered.call(name, arguments)
        raise LookupError(method)


def _name(host: str) -> str:
    """A host without its port."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


async def _body(receive: Receive) -> bytes | None:
    """The body of a request; None where it is too large."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > MAX_REQUEST_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _error(number: Any, code: Code, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code.value, "message": message}}
