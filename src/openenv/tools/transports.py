"""What carries MCP to a server that is wrapped: the pipes of a process, or Streamable HTTP.

A process is run in a group of its own, and ended with all of the group. The transports are as both
versions of the official SDK take them.
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
    Speaker,
    code_of,
    sdk_version,
    speaker_of_sdk,
)
from openenv.tools.sources import Address, Program

__all__ = ["ServerProcess", "speaker_of_address", "speaker_of_process"]

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
KEPT_LINES, KEPT_CHARACTERS = 20, 500  # of what a process says beside the protocol, and of a line
# What a process has to end in once its input is closed, and then once it was asked to.
EOF_GRACE_S, TERM_GRACE_S = 1.0, 2.0
EVENTS = "text/event-stream"
ENDS_OF_EVENTS = (b"\n\n", b"\r\n\r\n", b"\r\r")
ENCODINGS = ("identity", "gzip", "deflate")  # that unpack to 1000 times what was read at most
INTERNAL_ERROR = -32603  # of JSON-RPC

# Codes of JSON-RPC by which a server says that it knows no handshake.
NO_HANDSHAKE = (-32022, -32601)


class ServerProcess(PipedProcess):
    """An MCP server that runs as a process while this is entered; it may be entered again.

    Args:
        program: What to run.
        name: How the log calls it.
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
        """The last lines that it wrote beside the protocol, without secrets."""
        return self._said_so_far()

    async def __aenter__(self) -> tuple[Any, Any]:
        import anyio

        self._fell_silent = self._is_left = False
        self._excess = None
        process = self._started()
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
                stack.push_async_callback(_cancelled, pump)
            self._listening = pumps[0]
            stack.push_async_callback(self._wind_down, received, sent, pumps[2])
            self._open = stack.pop_all()
        return received, sent

    async def __aexit__(self, *exception: object) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

    # ------------------------------------------------------------------ its life

    def _started(self) -> subprocess.Popen[bytes]:
        from mcp.client.stdio import get_default_environment

        try:
            env = {**get_default_environment(), **self._program.env}
            return self._spawn(self._program.command, self._program.cwd, env)
        except OSError as error:
            why = error.strerror or str(error)
            raise ConnectionBroken(redact(f"{error.filename}: {why}")) from None

    async def how_it_ended(self) -> str | None:
        """How the process ended, or what it did that ended it; None where it goes on."""
        if self._excess is not None:
            return self._excess
        if not self._fell_silent or not await self._ends_within(LATE_S):
            return None
        await self._hear_last_words()
        return how_it_ended(self.exit_code)

    async def _wind_down(self, received: Any, sent: Any, sending: asyncio.Task[None]) -> None:
        """Have the process end by itself; what it still writes is read."""
        self._is_left = True
        await received.aclose()
        await sent.aclose()
        await _cancelled(sending)  # before its pipe is closed, whose number may be another's then
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        if self._excess is None and not await self._ends_within(EOF_GRACE_S):
            self._signal(signal.SIGTERM)
            await self._ends_within(TERM_GRACE_S)

    # ------------------------------------------------------------------ what it says

    async def _receive(self, stdout: asyncio.StreamReader, to_client: Any) -> None:
        import anyio

        parse = _parser()
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
                    await to_client.send(message)  # else it is being left
            self._fell_silent = not self._is_left

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        try:
            return await stdout.readline()
        except ValueError:
            self._excess = f"it wrote {_excess()}"
            return b""

    async def _send(self, to_server: Any, pipe: int, to_client: Any) -> None:
        try:
            async for message in to_server:
                await write_all(pipe, _written(message.message) + b"\n")
        except OSError:  # it takes no more; whoever waits for an answer is told so
            await to_client.aclose()

    def _note(self, line: str) -> None:
        super()._note(line)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s: %s", self._name, redact(self._said[-1]))


# ------------------------------------------------------------------ pipes


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a pipe of an MCP server broke", exc_info=error)


# ------------------------------------------------------------------ messages, by either SDK


def _excess() -> str:
    return f"a message of over {MAX_MESSAGE_BYTES} bytes, which is the most that is read of one"


def _parser() -> Callable[[bytes], Any]:
    """What reads a line; it raises ValueError."""
    from mcp.shared.message import SessionMessage

    if sdk_version() >= 2:
        from mcp_types import jsonrpc_message_adapter

        return lambda line: SessionMessage(
            jsonrpc_message_adapter.validate_json(line, by_name=False)
        )
    message = getattr(importlib.import_module("mcp.types"), "JSONRPCMessage")  # noqa: B009
    return lambda line: SessionMessage(message.model_validate_json(line))


def _written(message: Any) -> bytes:
    left_out = {"exclude_unset": True} if sdk_version() >= 2 else {"exclude_none": True}
    text: str = message.model_dump_json(by_alias=True, **left_out)
    return text.encode()


# ------------------------------------------------------------------ speakers


def speaker_of_process(process: ServerProcess) -> AbstractAsyncContextManager[Speaker]:
    """Run a server and speak to it."""
    return _greeted(lambda: process)


def speaker_of_address(address: Address) -> AbstractAsyncContextManager[Speaker]:
    """Speak to a server by Streamable HTTP."""
    return _greeted(lambda: _http(address.url, address.headers))


@contextlib.asynccontextmanager
async def _greeted(connect: Callable[[], Any]) -> AsyncIterator[Speaker]:
    """Greet a server by the handshake, which all knew until 2026: some end at anything else, and
    only by it there are sessions of MCP. One that says that it knows none is connected to again,
    and greeted as of 2026-07-28.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = speaker_of_sdk(connect(), greeting="legacy")
            speaker = await stack.enter_async_context(opened)
        except Exception as error:
            if code_of(error) not in NO_HANDSHAKE:
                raise
            speaker = await stack.enter_async_context(speaker_of_sdk(connect()))
        yield speaker


@contextlib.asynccontextmanager
async def _http(url: str, headers: Mapping[str, str]) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    # Version 2 has a limit of 1 MiB by itself, of events only. That of `_BoundedBody` replaces it.
    options: dict[str, Any] = {}
    if "max_sse_event_size" in inspect.signature(streamable_http_client).parameters:
        options["max_sse_event_size"] = None
    async with (
        _directed(create_mcp_http_client(headers=dict(headers)), url) as client,
        streamable_http_client(url, http_client=client, **options) as streams,
    ):
        client.headers["accept-encoding"] = ", ".join(ENCODINGS)
        client.event_hooks = {"response": [_bound_body]}
        yield streams


def _directed(client: Any, url: str) -> Any:
    """The same client of httpx, but for an address that no proxy leads to."""
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
    """The body of an answer over HTTP, whose messages have at most `MAX_MESSAGE_BYTES` each.

    The SDK reads a body of JSON however long it is, and its version 1 events too. In the place of a
    message that is too large it reads an error of JSON-RPC, so that whoever asked is told at once.
    In a stream that answers no request nobody waits for it: that ends with an exception.

    Args:
        response: An answer of which nothing was read.
        library: Which of ``httpx`` and ``httpx2`` it is of.
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
        if self._encoding not in ENCODINGS:  # others may unpack to any size at once
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
                yield self._refusal(_excess())
                return
            if self._is_events:
                yield part
            else:
                whole.append(part)
        yield b"".join(whole)

    async def aclose(self) -> None:
        await self._decoded.aclose()

    def _refusal(self, why: str) -> bytes:
        """What is read in a message's place: an error, after an event that nobody knows."""
        why = f"the MCP server sent {why}"
        number = from_json(self._asked).get("id") if self._asked else None
        if number is None:
            raise self._library.StreamError(why)
        error = {"code": INTERNAL_ERROR, "message": why}
        text = to_json({"jsonrpc": "2.0", "id": number, "error": error})
        return b"\nevent: left-out\n\ndata: " + text + b"\n\n" if self._is_events else text


async def _bound_body(response: Any) -> None:
    """Have an answer's body bounded, if it is one that the SDK reads."""
    if response.headers.get("content-type", "").startswith(("application/json", EVENTS)):
        library = importlib.import_module(type(response).__module__.partition(".")[0])
        bounded = type("BoundedBody", (_BoundedBody, library.AsyncByteStream), {})
        response.stream = bounded(response, library)
