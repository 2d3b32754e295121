"""The client's side of one session: order of calls, time limits, and what a loss means.

Version 0 has no session identity. When a connection is lost in the middle of an episode, that
episode is gone: `step` and `state` then raise `SessionLost` until `reset` begins a new one, on
a new connection. When an answer did not come in time, or the caller stopped waiting for it, the
connection stays and the late answer is dropped; but whether the step was carried out is not
known, so `step` likewise waits for a `reset`.

Version 0 matches answers to requests by their order alone, so a frame that nobody asked for would
shift every later answer by one. What has come before a request is sent is therefore read first,
and such a frame ends the connection with a `ProtocolError`. One that is still on its way while
the request is sent cannot be told from the answer.

A connection belongs to the process that made it. A forked child has a copy of the socket, but
writes nothing to it and says no goodbye: for it, the episode is lost.

A session that is dropped without `close` closes its connection when it is collected, with a
`ResourceWarning`: otherwise it would keep its slot on the server as long as this process lives.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._lazy import lazy_module
from openenv._traces import traced, tracer
from openenv.client.transports.base import Transport, TransportClosed
from openenv.errors import ErrorCode, ProtocolError, ResponseTimeout, SessionLost, server_error
from openenv.protocol.connection import ClientConnection
from openenv.protocol.messages import ErrorReply, Reply, Request
from openenv.protocol.v1 import ClientConnection1, client_connection

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")

__all__ = ["ClientSession"]

T = TypeVar("T")

RESET_HINT = "call reset() to begin a new episode"
CLOSED = "the client was closed"
CLOSE_LIMIT_S = 5.0


class _Turn:
    """A lock, first come, first served, that costs next to nothing where nobody waits."""

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def come(self) -> None:
        """Take it, once it is one's turn."""
        if not self.is_taken:
            self.is_taken = True
            return
        called = asyncio.get_running_loop().create_future()
        self._waiting.append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # it was called, and leaves all the same
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next one come."""
        while self._waiting:
            called = self._waiting.popleft()
            if not called.done():
                called.set_result(None)
                return
        self.is_taken = False


class ClientSession:
    """Sends requests one at a time over a transport that it opens when needed.

    Args:
        open_transport: Makes a transport, not yet connected.
        timeout_s: Seconds to wait for an answer; None for no limit.
        lost: Why there is no episode to go on with; None where that is no loss.

    Attributes:
        has_owner: Somebody else will close it at the latest, so dropping it is no mistake.
        closes: How often it has been closed. A call that began before a close ends with it.
    """

    def __init__(
        self,
        open_transport: Callable[[], Transport],
        timeout_s: float | None,
        *,
        lost: str | None = None,
    ) -> None:
        self.has_owner = False
        self.closes = 0
        self._process = os.getpid()
        self._open_transport = open_transport
        self._timeout_s = timeout_s
        self._transport: Transport | None = None
        self._abandonment: weakref.finalize[..., ClientSession] | None = None
        self._connection: ClientConnection | ClientConnection1 = ClientConnection()
        self._turn = _Turn()
        self._tracer = tracer()
        self._lost = lost
        self._unanswered: str | None = None

    def for_another_loop(self, because: str | None = None) -> ClientSession:
        """The same session, without its connection, for use on another event loop.

        Args:
            because: What became of the connection, where this one was not closed.
        """
        if self._abandonment is not None:
            self._abandonment.detach()
        lost = because if because and self.is_connected else self._lost
        other = ClientSession(self._open_transport, self._timeout_s, lost=lost)
        other.has_owner = self.has_owner
        return other

    @property
    def is_inherited(self) -> bool:
        """It was made in another process, of which this one is a fork."""
        return self._process != os.getpid()

    @property
    def version(self) -> int:
        """The protocol version that is spoken."""
        return self._connection.version

    @property
    def is_connected(self) -> bool:
        """A connection is open, as far as is known."""
        return self._transport is not None

    async def connect(self, began: int | None = None) -> None:
        """Open the connection, if there is none.

        Args:
            began: What `closes` was when the call began; by default it begins now.

        Raises:
            ConnectError: No server answers.
            SessionLost: The session was closed meanwhile.
        """
        began = self.closes if began is None else began
        await self._turn.come()
        try:
            await self._connected(began)
        finally:
            self._turn.leave()

    async def request(
        self,
        request: Request,
        timeout_s: float | None = None,
        began: int | None = None,
        is_traced: bool = False,
    ) -> Reply:
        """Send a request and wait for its answer.

        Args:
            request: What to send.
            timeout_s: Seconds to wait; by default those of the session.
            began: What `closes` was when the call began; by default it begins now.
            is_traced: A span of the caller's tells of it already.

        Raises:
            ServerError: The server answered with an error.
            SessionLost: The episode is gone, or its state is unknown.
            ResponseTimeout: No answer came in time.
            ConnectError: There was no connection, and none could be made.
        """
        began = self.closes if began is None else began
        if self._tracer is not None and not is_traced:
            return await self._traced(request, timeout_s, began)
        turn = self._turn
        if turn.is_taken:
            await turn.come()
        else:
            turn.is_taken = True
        try:
            if request.type == "reset":
                return await self._reset(request, timeout_s, began)
            if self._lost is not None or self._unanswered is not None:
                self._check(request)
            reply = await self._exchange(request, timeout_s, began)
        finally:
            turn.leave()
        if type(reply) is ErrorReply:
            raise server_error(reply.data)
        return reply

    async def _traced(self, request: Request, timeout_s: float | None, began: int) -> Reply:
        def send(span: str) -> Awaitable[Reply]:
            request.trace = span
            return self.request(request, timeout_s, began, is_traced=True)

        return await traced(self._tracer, f"openenv.{request.type}", send)

    async def _reset(self, request: Request, timeout_s: float | None, began: int) -> Reply:
        was_connected = self.is_connected
        try:
            reply = await self._exchange(request, timeout_s, began)
        except SessionLost:
            # An idle connection may have died long ago. A reset loses nothing by it.
            if not was_connected or began != self.closes:
                raise
            reply = await self._exchange(request, timeout_s, began)
        if type(reply) is ErrorReply:
            raise server_error(reply.data)
        self._lost = self._unanswered = None
        return reply

    def _check(self, request: Request) -> None:
        if self._lost is not None:
            raise SessionLost(f"{self._lost}; {RESET_HINT}")
        if request.type == "step" and self._unanswered is not None:
            raise SessionLost(
                f"a {self._unanswered} was not answered before its caller stopped waiting, so "
                f"the state of the episode is unknown; {RESET_HINT}"
            )

    def _check_not_closed(self, began: int) -> None:
        if began != self.closes:
            raise SessionLost(f"{CLOSED}; {RESET_HINT}")

    async def _exchange(self, request: Request, timeout_s: float | None, began: int) -> Reply:
        transport = self._transport
        if transport is None:
            transport = await self._connected(began)
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            reply = await self._send_and_receive(transport, request, limit)
        except TransportClosed as error:
            if self._transport is transport:  # otherwise it was closed here, and `_lost` says so
                self._drop(f"the connection to the server was lost ({error})")
            raise SessionLost(f"{self._lost}; {RESET_HINT}") from error
        except asyncio.TimeoutError as error:
            raise ResponseTimeout(
                f"no answer to {request.type} within {limit:g} s. The server may still be "
                "working on it: raise message_timeout_s if it needs longer."
            ) from error
        except ProtocolError:
            await self._close_transport("the server broke the protocol")
            raise
        if type(reply) is ErrorReply and reply.is_fatal:
            refused = reply.data.get("code") != ErrorCode.SESSION_ERROR.value
            # A refusal ends nothing: the next call asks again.
            ended = self._lost if refused else "the server ended the session"
            await self._close_transport(ended)
        return reply

    async def _send_and_receive(
        self, transport: Transport, request: Request, limit: float | None
    ) -> Reply:
        if transport.has_frame():
            last_words = await self._read_ahead(transport)
            if last_words is not None:
                return last_words
        ticket, frame = self._connection.request(request)
        earlier = self._unanswered
        if request.type != "state":
            self._unanswered = request.type
        with contextlib.suppress(TransportClosed):  # the server's last words may be waiting
            transport.send(frame)
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            for owner, reply in self._connection.receive(await transport.receive(limit)):
                if owner == ticket or _is_fatal(reply):
                    self._unanswered = earlier
                    return reply
            if deadline is not None:  # a late answer to another call
                limit = max(0.0, deadline - time.monotonic())

    async def _read_ahead(self, transport: Transport) -> Reply | None:
        """Drop late answers; return a fatal error. Any other frame would shift the answers."""
        while transport.has_frame():
            for owner, reply in self._connection.receive(await transport.receive()):
                if _is_fatal(reply):
                    return reply
                if owner is None:
                    raise ProtocolError(f"the server sent a frame that nobody asked for: {reply}")
        return None

    async def _connected(self, began: int) -> Transport:
        if self._transport is None:
            self._check_not_closed(began)
            transport = self._open_transport()
            await transport.connect()
            try:
                self._check_not_closed(began)
            except SessionLost:
                await _part(transport)
                raise
            self._transport = transport
            self._connection = client_connection(transport.subprotocol)
            loop = asyncio.get_running_loop()
            self._abandonment = weakref.finalize(
                self, _abandon, transport, loop, os.getpid(), warn=not self.has_owner
            )
            self._abandonment.atexit = False
        return self._transport

    def _drop(self, reason: str | None) -> Transport | None:
        transport, self._transport = self._transport, None
        self._lost = reason
        self._connection.drop()
        if self._abandonment is not None:
            self._abandonment.detach()
        return transport

    async def _close_transport(self, reason: str | None) -> None:
        transport = self._drop(reason)
        if transport is not None:
            await _part(transport)

    async def close(self) -> None:
        """Say goodbye and close the connection, in 5 s at most. Safe to repeat.

        Calls that are under way end with `SessionLost`.
        """
        self.closes += 1
        if self._transport is None:
            return
        connection, transport = self._connection, self._drop(CLOSED)
        assert transport is not None
        _, frame = connection.request(Request("close"))
        # A call that is under way reads itself what comes, until the connection is closed.
        await _part(transport, frame, None if self._turn.is_taken else connection)


async def _part(
    transport: Transport,
    frame: bytes = b"",
    connection: ClientConnection | ClientConnection1 | None = None,
) -> None:
    """Close a connection, with a last frame, and wait until `connection` knows that it was heard;
    one that takes longer than 5 s is cut.
    """

    async def goodbye() -> None:
        with contextlib.suppress(TransportClosed, ProtocolError):
            if frame:
                transport.send(frame)
            while connection is not None and not connection.is_over:
                connection.receive(await transport.receive())
        await transport.close()

    try:
        with contextlib.suppress(TransportClosed, asyncio.TimeoutError):
            await _within(CLOSE_LIMIT_S, goodbye())
    finally:
        transport.abort()


def _is_fatal(reply: Reply) -> bool:
    return isinstance(reply, ErrorReply) and reply.is_fatal


_closing: set[asyncio.Task[None]] = set()


def _abandon(
    transport: Transport, loop: asyncio.AbstractEventLoop, process: int, *, warn: bool
) -> None:
    """Close the connection of a session that nobody holds any more, from whichever thread."""
    if process != os.getpid():
        return  # it is the parent's
    if loop.is_running():
        with contextlib.suppress(RuntimeError):  # it ended just now
            loop.call_soon_threadsafe(_close_in_background, transport)
    if warn:
        message = f"a client of {transport} was never closed; use `with`, or call close()"
        warnings.warn(message, ResourceWarning, stacklevel=2)


def _close_in_background(transport: Transport) -> None:
    task = asyncio.ensure_future(_close_quietly(transport))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _close_quietly(transport: Transport) -> None:
    with contextlib.suppress(OSError):
        await _part(transport)


async def _within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    if sys.version_info >= (3, 11):
        async with asyncio.timeout(seconds):
            return await work
    return await asyncio.wait_for(work, seconds)
