"""Resumption of a broken connection: the sessions continue over another transport."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from openenv._internal.lazy import asyncio, logging
from openenv._internal.timing import Expired, backoff_s, within
from openenv.client.transports.base import Transport, TransportClosed
from openenv.errors import (
    AuthenticationError,
    ConnectError,
    PermissionRefused,
    ProtocolError,
    ServerError,
    ServerGone,
)
from openenv.protocol.v1.connection import Multiplexer

if TYPE_CHECKING:
    from openenv.client.connection import ConnectionEndpoint

HELLO_LIMIT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
# TCP resends a packet that was lost during an outage after ever longer pauses, so a new attempt may
# be quicker than waiting.
FIRST_ATTEMPT_S, LONGEST_ATTEMPT_S = 1.0, 16.0
WORTH_SAYING_S = 1.0


class CannotResume(Exception):
    """The sessions of a broken connection are gone; the text says why."""


class _AnotherProcess(Exception):
    """The process that answered does not have the sessions."""


async def greeted(transport: Transport) -> str | bytes | bytearray:
    """Wait for the server's hello on a transport of version 1.

    Raises:
        ConnectError: No hello came within 10 s.
    """
    try:
        return await transport.receive(HELLO_LIMIT_S)
    except (TransportClosed, asyncio.TimeoutError) as error:
        why = str(error) or f"it was silent for {HELLO_LIMIT_S:g} s"
        raise ConnectError(f"the server at {transport} did not say hello: {why}") from error


async def resume(
    endpoint: ConnectionEndpoint, multiplexer: Multiplexer, broken_at: float, hurry: asyncio.Event
) -> Transport:
    """Reconnect to the server and resume the sessions, until the server's grace period is over.

    Args:
        endpoint: The server.
        multiplexer: The protocol state and the sessions of the broken connection.
        broken_at: When the connection broke, by the monotonic clock.
        hurry: Set by a call to make the next attempt begin at once.

    Returns:
        The transport, after the hello and after the missing frames were sent.

    Raises:
        CannotResume: The server has ended the sessions, or did not answer in time.
    """
    patience_s = multiplexer.hello.grace_s
    failures, attempt_s, told = 1, FIRST_ATTEMPT_S, False
    while True:
        hurry.clear()
        try:
            return await within(attempt_s, _resumed(endpoint.open_transport(), multiplexer))
        except Expired:
            why: Exception = ConnectError(f"no answer within {attempt_s:g} s")
            attempt_s = min(2 * attempt_s, LONGEST_ATTEMPT_S)
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
                raise CannotResume(
                    "the server has been restarted, or another server answers at its address"
                ) from error
            why = error
            failures = 1  # the next attempt may reach the right process
        except (ConnectError, TransportClosed) as error:
            why = error
        gone = await endpoint.why_gone() or _ended(multiplexer, why)
        if gone is not None:
            raise CannotResume(gone) from why
        broken_s = time.monotonic() - broken_at
        pause_s = backoff_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S, jitter=0.5)
        if broken_s + pause_s > patience_s:
            raise CannotResume(f"for {broken_s:.0f} s it could not be resumed ({why})") from why
        if broken_s > WORTH_SAYING_S and not told:
            told = True
            logging.getLogger(__name__).warning(
                "the connection to the server broke; trying to resume it for %g s (%s)",
                patience_s,
                why,
            )
        with contextlib.suppress(Expired):
            await within(pause_s, hurry.wait())
        failures += 1


def _ended(multiplexer: Multiplexer, why: Exception) -> str | None:
    """Return that the server has ended if that is certain: its address refuses connections."""
    if multiplexer.is_direct and isinstance(why.__cause__, ConnectionRefusedError):
        return "the server has ended: nothing listens at its address any more"
    return None


async def _resumed(transport: Transport, multiplexer: Multiplexer) -> Transport:
    try:
        await transport.connect(multiplexer.route)
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
