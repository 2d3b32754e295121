"""The contract between a connection and the transport that carries its frames."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from openenv._internal.lazy import asyncio, json
from openenv._internal.timing import within
from openenv.errors import REFUSALS, ConnectError

KEY_HINT = "give the client api_key=... (of a provider, its api_key), or set OPENENV_API_KEY"


class TransportClosed(Exception):
    """The transport is closed.

    Attributes:
        code: The WebSocket close code (RFC 6455, section 7.4), if there is one.
        by_peer: The other side closed it properly; otherwise the transport broke.
    """

    def __init__(self, reason: str, code: int | None = None, *, by_peer: bool = False) -> None:
        self.code = code
        self.by_peer = by_peer
        super().__init__(reason)


class Receiver(Protocol):
    """The receiver of a transport's frames, called on the transport's loop."""

    def on_frame(self, frame: str | bytes | bytearray) -> None:
        """Handle the next frame."""
        ...

    def on_closed(self, error: TransportClosed) -> None:
        """Note that no more frames will come; called once, after the last frame."""
        ...


class Transport(Protocol):
    """Carries the frames of a connection. A transport is opened only once.

    Until a receiver is attached, frames wait for `receive`, as in a handshake.

    Attributes:
        subprotocol: The WebSocket subprotocol agreed with the server; None means version 0.
        ends: The addresses and ports of this end and of the server's; None if there are none.
        route: The server behind a gateway that the transport leads to; None without a gateway.
        spread: Maximum number of sessions that a gateway wants on one connection; None for any.
    """

    subprotocol: str | None
    ends: list[str] | None
    route: str | None
    spread: int | None

    async def connect(self, route: str | None = None) -> None:
        """Open the transport; the attributes are valid from then on.

        Args:
            route: The server behind the gateway to connect to; by default the gateway chooses.

        Raises:
            ConnectError: No server answers there.
        """
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame, or buffer it until it can be sent.

        Raises:
            TransportClosed: The transport is closed.
        """
        ...

    async def receive(self, timeout_s: float | None = None) -> str | bytes | bytearray:
        """Wait for the next frame. Safe to cancel: no frame is lost.

        Args:
            timeout_s: Seconds to wait; None for no limit.

        Raises:
            asyncio.TimeoutError: No frame came in time.
            TransportClosed: The transport is closed, and no frame is left to read.
        """
        ...

    def attach(self, receiver: Receiver) -> None:
        """Pass all frames to `receiver` from now on, beginning with those that wait to be read."""
        ...

    async def close(self) -> None:
        """Close the transport and wait until it is closed. Safe to repeat."""
        ...

    def abort(self) -> None:
        """Cut an open transport without waiting."""
        ...


class FrameQueue:
    """Keeps frames until a receiver is attached, and then passes them on.

    Attributes:
        frames: Unread frames.
        ending: Why no more frames will come; None while they may.
        receiver: Receives the frames; None while they wait to be read.
    """

    def __init__(self) -> None:
        self.frames: deque[str | bytes | bytearray] = deque()
        self.ending: TransportClosed | None = None
        self.receiver: Receiver | None = None
        self._has_ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, frame: str | bytes | bytearray) -> None:
        """Pass a frame on, or keep it until a receiver is attached."""
        if self.receiver is not None:
            self.receiver.on_frame(frame)
        else:
            self.frames.append(frame)
            self._wake()

    def end(self, error: TransportClosed) -> None:
        """Tell the receiver, now or once attached, that no more frames will come."""
        if self._has_ended:
            return
        self._has_ended = True
        self.ending = error
        if self.receiver is not None:
            self.receiver.on_closed(error)
        self._wake()

    async def receive(self, timeout_s: float | None = None) -> str | bytes | bytearray:
        """Wait for the next frame; see `Transport.receive`."""
        return await within(timeout_s, self._next())

    async def _next(self) -> str | bytes | bytearray:
        while not self.frames:
            if self.ending is not None:
                raise self.ending
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.frames.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def attach(self, receiver: Receiver) -> None:
        """Pass all frames to `receiver` from now on; see `Transport.attach`."""
        while self.frames:
            receiver.on_frame(self.frames.popleft())
        self.receiver = receiver
        if self._has_ended and self.ending is not None:
            receiver.on_closed(self.ending)


class InProcessTransport(FrameQueue):
    """A transport without a network: it has no addresses and does not break."""

    def __init__(self, subprotocol: str | None = None) -> None:
        super().__init__()
        self.subprotocol = subprotocol
        self.ends: list[str] | None = None
        self.route: str | None = None
        self.spread: int | None = None


def refused(where: str, status: int, body: bytes | None) -> ConnectError:
    """Return the error for a handshake that a server refused with a status and maybe a reason."""
    try:
        reason = f"{json.loads(body or b'')['detail']} (status {status})"
    except (ValueError, TypeError, LookupError):
        reason = f"the server refused the handshake with status {status}"
    text = f"Failed to connect to {where}: {reason}"
    return REFUSALS.get(status, ConnectError)(f"{text}; {KEY_HINT}" if status == 401 else text)
