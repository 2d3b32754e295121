"""Going on with sessions on another socket, after one broke."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy_module
from openenv.client.transports.base import Transport, TransportClosed
from openenv.errors import (
    AuthenticationError,
    ConnectError,
    PermissionRefused,
    ProtocolError,
    ServerError,
    ServerGone,
)
from openenv.protocol.v1 import Multiplexer

if TYPE_CHECKING:
    import asyncio
    import logging
else:
    asyncio = lazy_module("asyncio")
    logging = lazy_module("logging")

__all__ = ["CannotResume", "greeted", "is_worth_resuming", "resume"]

HELLO_LIMIT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
WORTH_SAYING_S = 1.0


# Close codes of RFC 6455 that tell of an accident; with any other, a side has ended it on purpose.
ACCIDENTS = (None, 1006, 1011, 1013, 1014)


class CannotResume(Exception):
    """What the connection carried is gone; the text says why."""


class _AnotherProcess(Exception):
    """The server that answered is not the one that has the sessions."""


def is_worth_resuming(multiplexer: Multiplexer, error: TransportClosed) -> bool:
    """Whether the server may still have the sessions of a connection that `error` has ended."""
    return multiplexer.is_resumable and error.code in ACCIDENTS


async def greeted(transport: Transport) -> str | bytes | bytearray:
    """Wait for the hello on a connection of version 1.

    Raises:
        ConnectError: None came.
    """
    try:
        return await transport.receive(HELLO_LIMIT_S)
    except (TransportClosed, asyncio.TimeoutError) as error:
        why = str(error) or f"it was silent for {HELLO_LIMIT_S:g} s"
        raise ConnectError(f"the server at {transport} did not say hello: {why}") from error


async def resume(
    open_transport: Callable[[], Transport],
    multiplexer: Multiplexer,
    broken_at: float,
    why_gone: Callable[[], Awaitable[str | None]],
) -> Transport:
    """Connect anew and go on, trying again until the server's time of grace is over.

    Args:
        open_transport: Makes a transport, not yet connected.
        multiplexer: What the connection carried.
        broken_at: When it broke, by the monotonic clock.
        why_gone: Says why there is no use in trying, where that is known.

    Raises:
        CannotResume: The server has ended the sessions, or did not answer in time.
    """
    patience_s = multiplexer.hello.grace_s
    pause_s, told = FIRST_PAUSE_S, False
    while True:
        try:
            return await _resumed(open_transport, multiplexer)
        except (
            ServerError,
            ProtocolError,
            AuthenticationError,
            PermissionRefused,
            ServerGone,
        ) as error:
            raise CannotResume(getattr(error, "message", str(error))) from error
        except _AnotherProcess as error:
            if not multiplexer.hello.siblings:
                raise CannotResume("the server has been restarted") from error
            why: Exception = error
            pause_s = FIRST_PAUSE_S  # the system may choose the right one next
        except (ConnectError, TransportClosed) as error:
            why = error
        gone = await why_gone() or _ended(multiplexer, why)
        if gone is not None:
            raise CannotResume(gone) from why
        broken_s = time.monotonic() - broken_at
        if broken_s + pause_s > patience_s:
            raise CannotResume(f"for {broken_s:.0f} s it could not be resumed ({why})") from why
        if broken_s > WORTH_SAYING_S and not told:
            told = True
            logging.getLogger(__name__).warning(
                "the connection to the server broke; trying to resume it for %g s (%s)",
                patience_s,
                why,
            )
        jitter = random.uniform(0.5, 1.0)  # nosec B311  # so that not all come at once
        await asyncio.sleep(pause_s * jitter)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _ended(multiplexer: Multiplexer, why: Exception) -> str | None:
    """Say that the server has ended, where that is sure: nobody listens at its own address."""
    if multiplexer.is_direct and isinstance(why.__cause__, ConnectionRefusedError):
        return "the server has ended: nothing listens at its address any more"
    return None


async def _resumed(open_transport: Callable[[], Transport], multiplexer: Multiplexer) -> Transport:
    transport = open_transport()
    transport.seek(multiplexer.route)
    await transport.connect()
    try:
        if transport.subprotocol != multiplexer.codec.name:
            raise ProtocolError("the server does not speak version 1 any more")
        request = multiplexer.resume(await greeted(transport))
        if request is None:
            raise _AnotherProcess("another process of the server answered")
        transport.send(request)
        try:
            missing = multiplexer.resumed(await transport.receive(HELLO_LIMIT_S))
        except asyncio.TimeoutError:
            raise TransportClosed("the server did not answer") from None
        for frame in missing:
            transport.send(frame)
    except BaseException:
        transport.abort()
        raise
    return transport
