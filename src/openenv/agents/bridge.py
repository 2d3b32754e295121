"""An environment's tools for the agent inside it: an MCP server on loopback.

It speaks Streamable HTTP without sessions and answers each POST by JSON, which the specification
leaves to the server: `initialize`, `ping`, `tools/list` and `tools/call`.
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

from openenv._internal.redaction import redact
from openenv.agents.errors import HarnessError
from openenv.errors import words
from openenv.tools.functions import InvalidToolArguments, UnknownTool
from openenv.tools.results import build_failure
from openenv.tools.servers import open_server_tools
from openenv.tools.types import JsonRpcErrorCode as Code

__all__ = ["HarnessMCPBridge", "OfferedTools", "build_bridge_server"]

PATH = "/mcp"
# Revisions of MCP that have the handshake; an agent that asks for another is offered the last.
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MAX_REQUEST_BYTES = 64 * 2**20
CHUNK_BYTES = 2**16
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
    return open_server_tools(mcp_server)


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
            HarnessError: It is not up in that time, or cannot be bound to its address.
        """
        if self._server is None:
            self._server = _Server(self._answering, self._host, timeout_s)
        return self.url

    def stop(self, timeout_s: float = 5.0) -> None:
        """Serve no more. Calls that are under way are cut. Safe to repeat."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(timeout_s)


class _Server:
    """HTTP/1.1 on a thread.

    Raises:
        HarnessError: It is not up in that time, or cannot be bound to its address.
    """

    def __init__(self, answering: _Answering, host: str, timeout_s: float) -> None:
        self._answering = answering
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._port: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="openenv-harness-mcp", daemon=True)
        self._thread.start()
        try:
            self.port = self._port.result(timeout_s)
        except (OSError, TimeoutError, FutureTimeout) as error:
            self.stop(0)
            why = words(error)
            raise HarnessError(f"the tools could not be served on {host}: {why}") from error

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._port.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, self._host, 0)
        self._port.set_result(server.sockets[0].getsockname()[1])
        await self._over.wait()
        server.close()
        for task in self._open:  # agents keep their connections open
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def stop(self, timeout_s: float) -> None:
        """End it, from any thread."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(timeout_s)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            connection = h11.Connection(h11.SERVER)
            while (request := await _request(connection, reader, writer)) is not None:
                writer.write(_written(connection, *await self._answering.answered(*request)))
                await writer.drain()
                if connection.our_state is h11.MUST_CLOSE:
                    break
                connection.start_next_cycle()
        except (h11.ProtocolError, OSError):
            pass  # it is no client of HTTP, or has gone
        except asyncio.CancelledError:
            pass  # the bridge has been stopped
        finally:
            self._open.discard(task)
            writer.close()


async def _request(
    connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[h11.Request, bytes | None] | None:
    """The next request of a connection, and its body, which is None where it is too large; None at
    the end.
    """
    request: h11.Request | None = None
    parts: list[bytes] = []
    size = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                writer.write(connection.send(go_on) or b"")
            connection.receive_data(await reader.read(CHUNK_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size <= MAX_REQUEST_BYTES:
                parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, b"".join(parts) if size <= MAX_REQUEST_BYTES else None
        else:  # the connection is closed, or stays as it is
            return None


def _written(connection: h11.Connection, status: int, answer: Any) -> bytes:
    body = b"" if answer is None else to_json(answer, inf_nan_mode="null", fallback=str)
    headers = [("content-length", str(len(body)))]
    if body:
        headers.append(("content-type", "application/json"))
    if status == 405:
        headers.append(("allow", "POST"))
    events = [h11.Response(status_code=status, headers=headers), h11.Data(body), h11.EndOfMessage()]
    return b"".join(connection.send(event) or b"" for event in events)


class _Answering:
    """MCP's messages in, answers out."""

    def __init__(self, offered: OfferedTools, host: str) -> None:
        self._offered = offered
        self._hosts = LOOPBACK | {host}

    async def answered(self, request: h11.Request, body: bytes | None) -> tuple[int, Any]:
        """The status and the answer to a request of HTTP; None is an empty body."""
        if request.target.partition(b"?")[0].rstrip(b"/") != PATH.encode():
            return 404, None
        if not self._is_local(request):  # a page in a browser of this machine (DNS rebinding)
            why = "only programs of this machine are served"
            return 403, _error(None, Code.INVALID_REQUEST, why)
        if request.method != b"POST":
            return 405, None
        if body is None:
            why = (
                f"the request has over {MAX_REQUEST_BYTES} bytes, the most that is taken; send less"
            )
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
            result = build_failure(words(error))  # the model can do better
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


def _error(number: Any, code: Code, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code.value, "message": message}}
