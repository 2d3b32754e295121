"""Transports to wrapped MCP servers: the pipes of a process, or Streamable HTTP.

Each process runs in a process group of its own, which is terminated as a whole. The transports have
the form that both versions of the official SDK accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import logging
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from pydantic_core import from_json, to_json

from openenv._internal.net.proxies import direct_mounts
from openenv._internal.pipes import LATE_S, PipedProcess, read_pipe, write_all
from openenv._internal.redaction import redact
from openenv.errors import how_it_ended
from openenv.tools.connections import (
    ConnectionBroken,
    MCPClient,
    connect_sdk,
    error_code,
    sdk_version,
)
from openenv.tools.sources import Address, Program

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
KEPT_LINES, KEPT_CHARACTERS = 20, 500  # lines of stderr to keep, and characters per line
# Grace periods: after closing the input, then after SIGTERM.
EOF_GRACE_S, TERM_GRACE_S = 1.0, 2.0
EVENTS = "text/event-stream"
ENDS_OF_EVENTS = (b"\n\n", b"\r\n\r\n", b"\r\r")
ENCODINGS = ("identity", "gzip", "deflate")  # these unpack to at most 1000 times their size
INTERNAL_ERROR = -32603  # of JSON-RPC

# JSON-RPC codes of servers that do not support the handshake.
NO_HANDSHAKE = (-32022, -32601)


class MCPServerProcess(PipedProcess):
    """An MCP server process that runs while the context is entered; reusable.

    Args:
        program: The program to run.
        name: The server's name in log messages.
    """

    def __init__(self, program: Program, name: str) -> None:
        super().__init__(KEPT_LINES, KEPT_CHARACTERS)
        self._program = program
        self._name = name
        self._fell_silent = self._is_left = False
        self._excess: str | None = None
        self._open: contextlib.AsyncExitStack | None = None

    @property
    def last_words(self) -> str:
        """Return the last lines that the process wrote to stderr, without secrets."""
        return self._said_so_far()

    async def __aenter__(self) -> tuple[Any, Any]:
        import anyio

        self._fell_silent = self._is_left = False
        self._excess = None
        process = self._start()
        assert process.stdin and process.stdout and process.stderr
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.kill)
            to_client, received = anyio.create_memory_object_stream[Any](0)
            sent, to_server = anyio.create_memory_object_stream[Any](0)
            for stream in (to_client, received, sent, to_server):
                stack.push_async_callback(stream.aclose)
            stdout, stderr = [
                await read_pipe(pipe, MAX_MESSAGE_BYTES, stack)
                for pipe in (process.stdout, process.stderr)
            ]
            sending = self._send(to_server, process.stdin.fileno(), to_client)
            pumps = [
                asyncio.ensure_future(pump)
                for pump in (self._listen(stderr), self._receive(stdout, to_client), sending)
            ]
            for pump in pumps:
                stack.push_async_callback(_cancel, pump)
            self._listening = pumps[0]
            stack.push_async_callback(self._wind_down, received, sent, pumps[2])
            self._open = stack.pop_all()
        return received, sent

    async def __aexit__(self, *exception: object) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

    # ------------------------------------------------------------------ life cycle

    def _start(self) -> subprocess.Popen[bytes]:
        from mcp.client.stdio import get_default_environment

        try:
            env = {**get_default_environment(), **self._program.env}
            return self._spawn(self._program.command, self._program.cwd, env)
        except OSError as error:
            why = error.strerror or str(error)
            raise ConnectionBroken(redact(f"{error.filename}: {why}")) from None

    async def how_it_ended(self) -> str | None:
        """Return the reason for the end of the process; None while the process runs."""
        if self._excess is not None:
            return self._excess
        if not self._fell_silent or not await self._ends_within(LATE_S):
            return None
        await self._hear_last_words()
        return how_it_ended(self.exit_code)

    async def _wind_down(self, received: Any, sent: Any, sending: asyncio.Task[None]) -> None:
        """Close the process's input, read remaining output, and terminate after a grace period."""
        self._is_left = True
        await received.aclose()
        await sent.aclose()
        await _cancel(sending)  # first: after closing, the pipe's descriptor may be reused
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        if self._excess is None and not await self._ends_within(EOF_GRACE_S):
            self._signal(signal.SIGTERM)
            await self._ends_within(TERM_GRACE_S)

    # ------------------------------------------------------------------ messages

    async def _receive(self, stdout: asyncio.StreamReader, to_client: Any) -> None:
        import anyio

        parse = _make_parser()
        with to_client:
            while line := await self._line(stdout):
                if not line.strip():
                    continue
                try:
                    message = parse(line)
                except ValueError:
                    self._note(f"(on stdout, and no JSON-RPC) {line.decode(errors='replace')}")
                    continue
                with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await to_client.send(message)  # raised while the context is being left
            self._fell_silent = not self._is_left

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        try:
            return await stdout.readline()
        except ValueError:
            self._excess = f"it wrote {_describe_excess()}"
            return b""

    async def _send(self, to_server: Any, pipe: int, to_client: Any) -> None:
        try:
            async for message in to_server:
                await write_all(pipe, _encode(message.message) + b"\n")
        except OSError:  # stdin is closed; end the stream so that callers get an error
            await to_client.aclose()

    def _note(self, line: str) -> None:
        super()._note(line)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s: %s", self._name, redact(self._said[-1]))


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a pipe of an MCP server broke", exc_info=error)


# ------------------------------------------------------------------ message formats of the SDK


def _describe_excess() -> str:
    return f"a message of over {MAX_MESSAGE_BYTES} bytes, which is the most that is read of one"


def _make_parser() -> Callable[[bytes], Any]:
    """Return a function that parses a line, or raises ValueError."""
    from mcp.shared.message import SessionMessage

    if sdk_version() >= 2:
        from mcp_types import jsonrpc_message_adapter

        return lambda line: SessionMessage(
            jsonrpc_message_adapter.validate_json(line, by_name=False)
        )
    message = getattr(importlib.import_module("mcp.types"), "JSONRPCMessage")  # noqa: B009
    return lambda line: SessionMessage(message.model_validate_json(line))


def _encode(message: Any) -> bytes:
    left_out = {"exclude_unset": True} if sdk_version() >= 2 else {"exclude_none": True}
    text: str = message.model_dump_json(by_alias=True, **left_out)
    return text.encode()


# ------------------------------------------------------------------ connections


def connect_process(process: MCPServerProcess) -> AbstractAsyncContextManager[MCPClient]:
    """Start a server process and connect."""
    return _connect(lambda: process)


def connect_address(address: Address) -> AbstractAsyncContextManager[MCPClient]:
    """Connect to a server by Streamable HTTP."""
    return _connect(lambda: _http(address.url, address.headers))


@contextlib.asynccontextmanager
async def _connect(connect: Callable[[], Any]) -> AsyncIterator[MCPClient]:
    """Connect with the handshake used until 2026, or without if the server has none.

    Some servers exit on any other first message, and only the handshake gives MCP sessions. If the
    server answers that it has no handshake, a second connection uses revision 2026-07-28.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = connect_sdk(connect(), greeting="legacy")
            client = await stack.enter_async_context(opened)
        except Exception as error:
            if error_code(error) not in NO_HANDSHAKE:
                raise
            client = await stack.enter_async_context(connect_sdk(connect()))
        yield client


@contextlib.asynccontextmanager
async def _http(url: str, headers: Mapping[str, str]) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    # Version 2 limits events to 1 MiB; `_BoundedBody` replaces that limit.
    options: dict[str, Any] = {}
    if "max_sse_event_size" in inspect.signature(streamable_http_client).parameters:
        options["max_sse_event_size"] = None
    async with (
        _without_proxy(create_mcp_http_client(headers=dict(headers)), url) as client,
        streamable_http_client(url, http_client=client, **options) as streams,
    ):
        client.headers["accept-encoding"] = ", ".join(ENCODINGS)
        client.event_hooks = {"response": [_bound_body]}
        yield streams


def _without_proxy(client: Any, url: str) -> Any:
    """Return the httpx client, rebuilt without proxies for an address that must not be proxied."""
    mounts = direct_mounts(url)
    if not mounts:
        return client
    return type(client)(
        headers=client.headers,
        timeout=client.timeout,
        follow_redirects=client.follow_redirects,
        **mounts,
    )


# ------------------------------------------------------------------ bodies over HTTP


class _BoundedBody:
    """The body of an HTTP answer, with a limit of `MAX_MESSAGE_BYTES` on each message.

    The SDK reads JSON bodies of any length, and version 1 reads events of any length too. A message
    that is too large is replaced by a JSON-RPC error, so that the call fails at once. If the stream
    answers no request, no call waits for the message, and the stream ends with an exception.

    Args:
        response: An answer whose body has not been read.
        library: The module of the response: ``httpx`` or ``httpx2``.
    """

    def __init__(self, response: Any, library: Any) -> None:
        self._library = library
        self._decoded = library.Response(
            response.status_code, headers=response.headers, stream=response.stream
        )
        self._encoding = response.headers.pop("content-encoding", "identity")
        self._is_events = response.headers["content-type"].startswith(EVENTS)
        self._asked = response.request.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in ENCODINGS:  # other encodings may unpack to any size in one step
            await self.aclose()
            yield self._refusal(f"an answer in the encoding {self._encoding!r}, which is not read")
            return
        whole: list[bytes] = []
        held, tail = 0, b""
        async for part in self._decoded.aiter_bytes():
            held += len(part)
            if self._is_events:
                tail += part
                if (end := max(map(tail.rfind, ENDS_OF_EVENTS))) >= 0:
                    held = len(tail) - end
                tail = tail[-3:]
            if held > MAX_MESSAGE_BYTES:
                await self.aclose()
                yield self._refusal(_describe_excess())
                return
            if self._is_events:
                yield part
            else:
                whole.append(part)
        yield b"".join(whole)

    async def aclose(self) -> None:
        await self._decoded.aclose()

    def _refusal(self, why: str) -> bytes:
        """Return the JSON-RPC error that replaces a message, after an event that clients ignore."""
        why = f"the MCP server sent {why}"
        number = from_json(self._asked).get("id") if self._asked else None
        if number is None:
            raise self._library.StreamError(why)
        error = {"code": INTERNAL_ERROR, "message": why}
        text = to_json({"jsonrpc": "2.0", "id": number, "error": error})
        return b"\nevent: left-out\n\ndata: " + text + b"\n\n" if self._is_events else text


async def _bound_body(response: Any) -> None:
    """Limit the body of an answer if the SDK reads this content type."""
    if response.headers.get("content-type", "").startswith(("application/json", EVENTS)):
        library = importlib.import_module(type(response).__module__.partition(".")[0])
        bounded = type("BoundedBody", (_BoundedBody, library.AsyncByteStream), {})
        response.stream = bounded(response, library)
