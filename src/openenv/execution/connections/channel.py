"""Channels, which carry frames between a client and a connection of the server."""

from __future__ import annotations

from typing import Any, Protocol

from openenv.execution.principal import Principal

# WebSocket close codes (RFC 6455, section 7.4.1).
NORMAL_CLOSURE = 1000
PROTOCOL_ERROR = 1002
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012


class Channel(Protocol):
    """Carries frames to a client. Once the client has left, every method does nothing.

    Attributes:
        connection: Receives the client's frames (`receive`), and is told when the client has left
            (`lose`) and when the channel is no longer clogged (`go_on`). None drops frames.
    """

    connection: Any

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not read what is sent."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame, or buffer it until the socket accepts more."""
        ...

    def close(self, code: int) -> None:
        """Close from this side, with a code of RFC 6455, after all frames are sent."""
        ...

    def pause(self) -> None:
        """Stop listening, since more has arrived than can be served."""
        ...

    def resume(self) -> None:
        """Listen again."""
        ...

    def abort(self) -> None:
        """Cut the connection."""
        ...


class ChargedChannel:
    """A channel to a client with limits; it counts the sent bytes against the limits."""

    connection: Any = None  # only the inner channel uses it

    def __init__(self, channel: Channel, principal: Principal) -> None:
        self._channel, self._principal = channel, principal
        self.close, self.pause, self.resume = channel.close, channel.pause, channel.resume
        self.abort = channel.abort

    @property
    def is_clogged(self) -> bool:
        return self._channel.is_clogged

    def send(self, frame: bytes) -> None:
        self._principal.charge(len(frame))
        self._channel.send(frame)


def charge(channel: Channel, limited: Principal | None) -> Channel:
    """Return the channel, wrapped in a `ChargedChannel` if the client has limits."""
    return channel if limited is None else ChargedChannel(channel, limited)


class LostChannel:
    """Replaces a channel that broke. The resend buffer keeps the frames sent meanwhile."""

    connection: Any = None
    is_clogged = True

    def send(self, *_: Any) -> None:
        """Do nothing."""

    close = pause = resume = abort = send


LOST_CHANNEL: Any = LostChannel()
