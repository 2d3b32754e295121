"""A loopback MCP server that offers an environment's tools to the agent inside.

It implements Streamable HTTP without sessions and answers each POST with JSON, which the
specification allows: `initialize`, `ping`, `tools/list` and `tools/call`.

The server has its own thread and event loop, so that tools answer while the environment's thread
waits for the agent. `stop` may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol

import h11
from pydantic_core import from_json, to_json

from openenv._internal.net.wire import Wire
from openenv._internal.redaction import redact
from openenv.agents.errors import HarnessError
from openenv.errors import words
from openenv.tools.functions import InvalidToolArguments, UnknownTool
from openenv.tools.results import build_failure
from openenv.tools.servers import open_server_tools
from openenv.tools.types import JsonRpcErrorCode as Code

__all__ = ["HarnessMCPBridge", "OfferedTools", "build_bridge_server"]

PATH = "/mcp"
# MCP revisions with a handshake; an agent that requests any other revision is offered the last.
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MAX_REQUEST_BYTES = 64 * 2**20
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


class OfferedTools(Protocol):
    """The interface of tools that can be listed and called, in MCP's format."""

    async def tools(self) -> list[dict[str, Any]]:
        """List the tools as MCP describes them: name, description, inputSchema and so on."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return the result in MCP's format.

        Raises:
            UnknownTool: There is no tool with this name.
            InvalidToolArguments: The tool does not accept these arguments.
        """
        ...


class RenamedTools:
    """The tools of an MCP server, some of them renamed.

    Args:
        offered: The tools.
        renames: Maps new names to the server's names.
    """

    def __init__(self, offered: OfferedTools, renames: Mapping[str, str]) -> None:
        self._offered = offered
        self._original = dict(renames)

    async def tools(self) -> list[dict[str, Any]]:
        shown = {original: name for name, original in self._original.items()}
        found = await self._offered.tools()
        return [{**tool, "name": shown.get(tool["name"], tool["name"])} for tool in found]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name not in self._original and name in self._original.values():
            raise UnknownTool(f"Unknown tool: {name!r}")
        return await self._offered.call(self._original.get(name, name), arguments)


async def build_bridge_server(mcp_server: Any, renames: Mapping[str, str]) -> OfferedTools:
    """Return an MCP server's tools for a `HarnessMCPBridge`, some of them renamed.

    Args:
        mcp_server: A FastMCP server, a server of the official SDK, or `OfferedTools`.
        renames: Maps new names to the server's names.

    Raises:
        HarnessError: `renames` names a tool that the server does not have.
    """
    offered = to_offered_tools(mcp_server)
    names = {tool["name"] for tool in await offered.tools()}
    missing = sorted(set(renames.values()) - names)
    if missing:
        raise HarnessError(
            f"renames: the MCP server has no tool {', '.join(map(repr, missing))}; it has "
            f"{', '.join(sorted(names)) or 'none'}. Write {{new name: the server's name}}"
        )
    return RenamedTools(offered, renames) if renames else offered


def to_offered_tools(mcp_server: Any) -> OfferedTools:
    """Return a server's tools, or the object itself if it already is `OfferedTools`.

    Raises:
        TypeError: The object is neither a server nor `OfferedTools`.
    """
    if callable(getattr(mcp_server, "tools", None)) and callable(getattr(mcp_server, "call", None)):
        offered: OfferedTools = mcp_server
        return offered
    return open_server_tools(mcp_server)


class HarnessMCPBridge:
    """A local MCP server that offers tools to an agent, on a separate thread and event loop.

    Args:
        mcp_server: A FastMCP server, a server of the official SDK, or `OfferedTools`.
        host: The address to bind to; the port is chosen by the operating system.
    """

    def __init__(self, mcp_server: Any, host: str = "127.0.0.1") -> None:
        self._handler = _MCPHandler(to_offered_tools(mcp_server), host)
        self._host = host
        self._port: int | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Return the URL, such as ``http://127.0.0.1:40123/mcp``.

        Raises:
            HarnessError: The bridge was not started.
        """
        if self._port is None:
            raise HarnessError("the bridge has no address yet: start it")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{PATH}"

    def start(self, timeout_s: float = 10.0) -> str:
        """Start serving and return the URL.

        Raises:
            HarnessError: The server did not start within `timeout_s` seconds, or cannot bind to the
                address.
        """
        if self._thread is None:
            loop, over = self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
            bound: Future[int] = Future()
            run = (loop, over, bound)
            self._thread = threading.Thread(
                target=self._run, args=run, name="openenv-harness-mcp", daemon=True
            )
            self._thread.start()
            try:
                self._port = bound.result(timeout_s)
            except (OSError, TimeoutError, FutureTimeout) as error:
                self.stop(0)
                why = f"the tools could not be served on {self._host}: {words(error)}"
                raise HarnessError(why) from error
        return self.url

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop serving and cancel running calls; wait up to `timeout_s` seconds. Idempotent."""
        thread, self._thread, self._port = self._thread, None, None
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._over.set)
            thread.join(timeout_s)

    def _run(
        self, loop: asyncio.AbstractEventLoop, over: asyncio.Event, bound: Future[int]
    ) -> None:
        try:
            loop.run_until_complete(self._serve(over, bound))
        except OSError as error:
            bound.set_exception(error)
        finally:
            loop.close()

    async def _serve(self, over: asyncio.Event, bound: Future[int]) -> None:
        loop = asyncio.get_running_loop()
        opened: set[asyncio.Task[None]] = set()
        server = await loop.create_server(lambda: self._accept(opened), self._host, 0)
        bound.set_result(server.sockets[0].getsockname()[1])
        await over.wait()
        server.close()
        for task in opened:  # agents keep connections open
            task.cancel()
        await asyncio.gather(*opened, return_exceptions=True)

    def _accept(self, opened: set[asyncio.Task[None]]) -> Wire:
        wire = Wire(h11.SERVER, keeps_half_open=True)

        def serve() -> None:
            task = asyncio.ensure_future(self._answer(wire))
            opened.add(task)
            task.add_done_callback(opened.discard)

        wire.made = serve
        return wire

    async def _answer(self, wire: Wire) -> None:
        try:
            while isinstance(request := await wire.event(), h11.Request):
                body = bytearray()
                async for part in wire.body():
                    if len(body) <= MAX_REQUEST_BYTES:  # the rest is discarded
                        body += part
                is_whole = len(body) <= MAX_REQUEST_BYTES
                answered = await self._handler.handle(request, bytes(body) if is_whole else None)
                await wire.send(*_build_response(*answered))
                if wire.http.our_state is h11.MUST_CLOSE:
                    break
                wire.http.start_next_cycle()
        except (h11.ProtocolError, OSError, asyncio.CancelledError):
            pass  # no HTTP client, or disconnected, or the bridge has been stopped
        finally:
            wire.transport.close()


def _build_response(status: int, answer: Any) -> tuple[h11.Response, h11.Data, h11.EndOfMessage]:
    body = b"" if answer is None else to_json(answer, inf_nan_mode="null", fallback=str)
    headers = [("content-length", str(len(body)))]
    if body:
        headers.append(("content-type", "application/json"))
    if status == 405:
        headers.append(("allow", "POST"))
    head = h11.Response(status_code=status, headers=headers)
    return head, h11.Data(data=body), h11.EndOfMessage()


class _MCPHandler:
    """The MCP message handler of the bridge."""

    def __init__(self, offered: OfferedTools, host: str) -> None:
        self._offered = offered
        self._hosts = LOOPBACK | {host}

    async def handle(self, request: h11.Request, body: bytes | None) -> tuple[int, Any]:
        """Return the status and answer to an HTTP request; None is an empty body."""
        if request.target.partition(b"?")[0].rstrip(b"/") != PATH.encode():
            return 404, None
        if not self._is_local(request):  # a web page in a local browser (DNS rebinding)
            why = "only programs of this machine are served"
            return 403, _error(None, Code.INVALID_REQUEST, why)
        if request.method != b"POST":
            return 405, None
        if body is None:
            why = f"the request has over {MAX_REQUEST_BYTES} bytes, which is the limit"
            return 413, _error(None, Code.INVALID_REQUEST, why)
        try:
            message = from_json(body)
        except ValueError as error:
            return 400, _error(None, Code.PARSE_ERROR, f"Parse error: {error}")
        if isinstance(message, list):
            answers = [a for a in [await self._answer(one) for one in message] if a is not None]
            return (200, answers) if answers else (202, None)
        answer = await self._answer(message)
        return (202, None) if answer is None else (200, answer)

    def _is_local(self, request: h11.Request) -> bool:
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        origin = headers.get(b"origin", "").partition("://")[2]
        return all(
            _strip_port(one) in self._hosts for one in (headers.get(b"host", ""), origin) if one
        )

    async def _answer(self, message: Any) -> dict[str, Any] | None:
        """Return the answer to a message, or None for a notification."""
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return _error(None, Code.INVALID_REQUEST, "Invalid request: expected JSON-RPC 2.0")
        method, number = message.get("method"), message.get("id")
        if number is None or method is None:  # a notification or an answer
            return None
        params = message.get("params")
        try:
            result = await self._result(method, params if isinstance(params, dict) else {})
        except UnknownTool as error:
            return _error(number, Code.INVALID_PARAMS, words(error))
        except InvalidToolArguments as error:
            result = build_failure(words(error))  # the model can correct its call
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


def _strip_port(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _error(number: Any, code: Code, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code.value, "message": message}}
