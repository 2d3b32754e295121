"""The contract between a client and whatever carries its frames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from openenv._internal.lazy import lazy_module
from openenv.errors import REFUSALS, ConnectError

if TYPE_CHECKING:
    import json
else:
    json = lazy_module("json")

__all__ = ["Transport", "TransportClosed", "WithinProcess", "refused"]

KEY_HINT = "give the client api_key=... (of a provider, its api_key), or set OPENENV_API_KEY"


class TransportClosed(Exception):
    """The connection is gone; `code` is the close code of RFC 6455 where one came."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        self.code = code
        super().__init__(reason)


class Transport(Protocol):
    """One connection. It is opened once, and never again after it closed."""

    @property
    def subprotocol(self) -> str | None:
        """What was agreed with the server, once connected; None is version 0."""
        ...

    @property
    def ends(self) -> list[str] | None:
        """The addresses and ports of this end and of the server's, once connected; None where
        there are none.
        """
        ...

    @property
    def route(self) -> str | None:
        """Which of the servers behind a gateway it goes to, once connected; None without one."""
        ...

    @property
    def spread(self) -> int | None:
        """How many sessions a gateway wants on one connection at most; None is any number."""
        ...

    def seek(self, route: str | None) -> None:
        """Have `connect` go to this server behind the gateway, which has the sessions."""
        ...

    @property
    def is_broken(self) -> bool:
        """The connection has ended without a goodbye from the other side."""
        ...

    async def connect(self) -> None:
        """Open the connection.

        Raises:
            ConnectError: No server answers there.
        """
        ...

    def send(self, frame: bytes) -> None:
        """Send one frame, or keep it until it can be sent.

        Raises:
            TransportClosed: The connection is gone.
        """
        ...

    def receive(self, timeout_s: float | None = None) -> Awaitable[str | bytes | bytearray]:
        """Wait for the next frame. Safe to cancel: no frame is lost.

        Args:
            timeout_s: Seconds to wait; None for ever.

        Raises:
            asyncio.TimeoutError: None came in time.
            TransportClosed: The connection is gone, and no frame is left to read.
        """
        ...

    def has_frame(self) -> bool:
        """Say whether `receive` has something to read, and would not wait."""
        ...

    async def close(self) -> None:
        """Close the connection, and wait until it is closed. Safe to repeat."""
        ...

    def abort(self) -> None:
        """Cut the connection, if it is still there, without waiting for anybody."""
        ...

    def watch(self, broken: Callable[[], None]) -> None:
        """Have `broken` called, on the event loop, if the connection breaks while nobody waits in
        `receive`.
        """
        ...


class WithinProcess:
    """A transport without a network: it has no addresses, and does not break."""

    ends: list[str] | None = None
    route: str | None = None
    spread: int | None = None
    is_broken = False

    def seek(self, route: str | None) -> None:
        """Nothing: there is no gateway."""

    def watch(self, broken: Callable[[], None]) -> None:
        """Nothing: see above."""


def refused(where: str, status: int, body: bytes | None) -> ConnectError:
    """The error of a handshake that a server has answered with a status, and maybe a reason."""
    try:
        said = f"{json.loads(body or b'')['detail']} (status {status})"
    except (ValueError, TypeError, LookupError):
        said = f"the server refused the handshake with status {status}"
    text = f"Failed to connect to {where}: {said}"
    return REFUSALS.get(status, ConnectError)(f"{text}; {KEY_HINT}" if status == 401 else text)
