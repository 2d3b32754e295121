"""The client's side of one session: order of calls, time limits, and what a loss means.

Version 0 has no session identity. When a connection is lost in the middle of an episode, that
episode is gone: `step` and `state` then raise `SessionLost` until `reset` begins a new one, on
a new connection. When an answer did not come in time, or the caller stopped waiting for it, the
connection stays and the late answer is dropped; but whether the step was carried out is not
known, so `step` likewise waits for a `reset`.

A session that is dropped without `close` closes its connection when it is collected, with a
`ResourceWarning`: otherwise it would keep its slot on the server as long as this process lives.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._lazy import lazy_module
from openenv.client.transports.base import Transport, TransportClosed
from openenv.errors import ErrorCode, ProtocolError, ResponseTimeout, SessionLost, server_error
from openenv.protocol.connection import ClientConnection
from openenv.protocol.messages import ErrorReply, Reply, Request

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")

__all__ = ["ClientSession"]

T = TypeVar("T")

RESET_HINT = "call reset() to begin a new episode"


class ClientSession:
    """Sends requests one at a time over a transport that it opens when needed.

    Args:
        open_transport: Makes a transport, not yet connected.
        timeout_s: Seconds to wait for an answer; None for no limit.
        lost: Why there is no episode to go on with; None where that is no loss.

    Attributes:
        has_owner: Somebody else will close it at the latest, so dropping it is no mistake.
    """

    def __init__(
        self,
        open_transport: Callable[[], Transport],
        timeout_s: float | None,
        *,
        lost: str | None = None,
    ) -> None:
        self.has_owner = False
        self._open_transport = open_transport
        self._timeout_s = timeout_s
        self._transport: Transport | None = None
        self._abandonment: weakref.finalize[..., ClientSession] | None = None
        self._connection = ClientConnection()
        self._turn = asyncio.Lock()
        self._lost = lost
        self._unanswered: str | None = None

    def for_another_loop(self) -> ClientSession:
        """The same session, closed, for use on another event loop."""
        other = ClientSession(self._open_transport, self._timeout_s, lost=self._lost)
        other.has_owner = self.has_owner
        return other

    @property
    def is_connected(self) -> bool:
        """A connection is open, as far as is known."""
        return self._transport is not None

    async def connect(self) -> None:
        """Open the connection, if there is none.

        Raises:
            ConnectError: No server answers.
        """
        async with self._turn:
            await self._connected()

    async def request(self, request: Request, timeout_s: float | None = None) -> Reply:
        """Send a request and wait for its answer.

        Raises:
            ServerError: The server answered with an error.
            SessionLost: The episode is gone, or its state is unknown.
            ResponseTimeout: No answer came in time.
            ConnectError: There was no connection, and none could be made.
        """
        async with self._turn:
            self._check(request)
            was_connected = self.is_connected
            try:
                reply = await self._exchange(request, timeout_s)
            except SessionLost:
                # An idle connection may have died long ago. A reset loses nothing by it.
                if request.type != "reset" or not was_connected:
                    raise
                reply = await self._exchange(request, timeout_s)
        if isinstance(reply, ErrorReply):
            raise server_error(reply.data)
        if request.type == "reset":
            self._lost = self._unanswered = None
        return reply

    def _check(self, request: Request) -> None:
        if request.type == "reset":
            return
        if self._lost is not None:
            raise SessionLost(f"{self._lost}; {RESET_HINT}")
        if request.type == "step" and self._unanswered is not None:
            raise SessionLost(
                f"a {self._unanswered} was not answered before its caller stopped waiting, so "
                f"the state of the episode is unknown; {RESET_HINT}"
            )

    async def _exchange(self, request: Request, timeout_s: float | None) -> Reply:
        transport = await self._connected()
        ticket, frame = self._connection.request(request)
        limit = self._timeout_s if timeout_s is None else timeout_s
        answered = False
        try:
            reply = await _within(limit, self._send_and_receive(transport, ticket, frame))
            answered = True
        except TransportClosed as error:
            answered = True  # by the loss; `_lost` says the rest
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
        finally:
            if not answered and request.type in ("step", "reset"):
                self._unanswered = request.type
        if isinstance(reply, ErrorReply) and reply.is_fatal:
            refused = reply.data.get("code") != ErrorCode.SESSION_ERROR.value
            # A refusal ends nothing: the next call asks again.
            ended = self._lost if refused else "the server ended the session"
            await self._close_transport(ended)
        return reply

    async def _send_and_receive(self, transport: Transport, ticket: int, frame: str) -> Reply:
        with contextlib.suppress(TransportClosed):  # the server's last words may be waiting
            await transport.send(frame)
        while True:
            owner, reply = self._connection.receive(await transport.receive())
            is_fatal = isinstance(reply, ErrorReply) and reply.is_fatal
            if owner == ticket or is_fatal:
                return reply

    async def _connected(self) -> Transport:
        if self._transport is None:
            transport = self._open_transport()
            await transport.connect()
            self._transport = transport
            self._connection = ClientConnection()
            loop = asyncio.get_running_loop()
            self._abandonment = weakref.finalize(
                self, _abandon, transport, loop, warn=not self.has_owner
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
            await transport.close()

    async def close(self) -> None:
        """Say goodbye and close the connection. Safe to repeat."""
        transport = self._transport
        if transport is None:
            return
        with contextlib.suppress(TransportClosed, ProtocolError):
            _, frame = self._connection.request(Request("close"))
            await transport.send(frame)
        await self._close_transport("the client was closed")


_closing: set[asyncio.Task[None]] = set()


def _abandon(transport: Transport, loop: asyncio.AbstractEventLoop, *, warn: bool) -> None:
    """Close the connection of a session that nobody holds any more, from whichever thread."""
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
    with contextlib.suppress(TransportClosed, OSError):
        await transport.close()


async def _within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    if sys.version_info >= (3, 11):
        async with asyncio.timeout(seconds):
            return await work
    return await asyncio.wait_for(work, seconds)
