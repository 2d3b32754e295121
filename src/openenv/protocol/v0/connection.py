"""The order of frames at either end of a connection of version 0; bytes in, values out.

The tables are the rules. The methods look them up and do the rest.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from openenv.errors import OpenEnvError, ProtocolError
from openenv.protocol.messages import ErrorReply, Reply, Request
from openenv.protocol.v0.codec import JSONCodec


class Phase(Enum):
    """The phases of a connection."""

    OPENING = auto()  # the session is being created
    OPEN = auto()
    CLOSED = auto()


class ConnectionEvent(Enum):
    """The events that change the phase of a connection."""

    ACCEPT = auto()  # the session is ready
    REFUSE = auto()  # the session could not be created, or is lost
    REQUEST = auto()
    CLOSE = auto()  # the client asks to close


# (phase, event) -> next phase. Any other pair is a ProtocolError.
SERVER_RULES: dict[tuple[Phase, ConnectionEvent], Phase] = {
    (Phase.OPENING, ConnectionEvent.ACCEPT): Phase.OPEN,
    (Phase.OPENING, ConnectionEvent.REFUSE): Phase.CLOSED,
    (Phase.OPEN, ConnectionEvent.REQUEST): Phase.OPEN,
    (Phase.OPEN, ConnectionEvent.REFUSE): Phase.CLOSED,
    (Phase.OPEN, ConnectionEvent.CLOSE): Phase.CLOSED,
}

# A client of version 0 may send at once: the server does not report that a session is ready.
CLIENT_RULES: dict[tuple[Phase, ConnectionEvent], Phase] = {
    (Phase.OPEN, ConnectionEvent.REQUEST): Phase.OPEN,
    (Phase.OPEN, ConnectionEvent.REFUSE): Phase.CLOSED,
    (Phase.OPEN, ConnectionEvent.CLOSE): Phase.CLOSED,
    (Phase.CLOSED, ConnectionEvent.CLOSE): Phase.CLOSED,
}


def _next(
    rules: dict[tuple[Phase, ConnectionEvent], Phase], phase: Phase, event: ConnectionEvent
) -> Phase:
    try:
        return rules[phase, event]
    except KeyError:
        raise ProtocolError(
            f"{event.name.lower()} is not allowed while the connection is {phase.name.lower()}"
        ) from None


class ServerConnection:
    """The server's end of a connection, which carries a single session.

    Attributes:
        encode: Writes the frame that answers a request.
    """

    __slots__ = ("codec", "encode", "phase")

    def __init__(self, codec: JSONCodec | None = None) -> None:
        self.codec = codec or JSONCodec()
        self.encode = self.codec.encode_reply
        self.phase = Phase.OPENING

    def accept(self) -> None:
        """Note that the session is ready."""
        self.phase = _next(SERVER_RULES, self.phase, ConnectionEvent.ACCEPT)

    def receive(self, frame: str | bytes) -> Request:
        """Read the next request.

        Raises:
            OpenEnvError: The frame is not a valid request; answer with the error and continue.
        """
        if self.phase is not Phase.OPEN:  # in this phase the rules allow a request
            self.phase = _next(SERVER_RULES, self.phase, ConnectionEvent.REQUEST)
        request = self.codec.decode_request(frame)
        if request.type == "close":
            self.phase = _next(SERVER_RULES, self.phase, ConnectionEvent.CLOSE)
        return request

    def refuse(self, error: OpenEnvError) -> bytes:
        """Write the error frame after which the connection closes."""
        self.phase = _next(SERVER_RULES, self.phase, ConnectionEvent.REFUSE)
        return self.codec.encode_error(error)

    def drop(self) -> None:
        """Note that the socket is gone."""
        self.phase = Phase.CLOSED


class ClientConnection:
    """The client's end of a connection. Answers are matched to requests by order alone."""

    def __init__(self, codec: JSONCodec | None = None) -> None:
        self.codec = codec or JSONCodec()
        self.phase = Phase.OPEN
        self._waiting: deque[int] = deque()
        self._last = 0

    def request(self, request: Request) -> tuple[int, bytes]:
        """Write a request; return the ticket that the answer will carry, and the frame."""
        frame = self.codec.encode_request(request)
        if self.phase is not Phase.OPEN or request.type == "close":
            return self.note(request), frame
        self._last = number = self._last + 1
        self._waiting.append(number)
        return number, frame

    def note(self, request: Request) -> int:
        """Note that a request written elsewhere is sent now; return the answer's ticket."""
        is_close = request.type == "close"
        if is_close or self.phase is not Phase.OPEN:  # a request in an open phase is allowed
            event = ConnectionEvent.CLOSE if is_close else ConnectionEvent.REQUEST
            self.phase = _next(CLIENT_RULES, self.phase, event)
        self._last += 1
        if not is_close:
            self._waiting.append(self._last)
        return self._last

    def receive(self, frame: str | bytes | bytearray) -> list[tuple[int | None, Reply]]:
        """Read the answer in a frame and its request's ticket; None if no request is open."""
        reply = self.codec.decode_reply(frame)
        if isinstance(reply, ErrorReply) and reply.is_fatal:
            self.phase = _next(CLIENT_RULES, self.phase, ConnectionEvent.REFUSE)
        return [(self._waiting.popleft() if self._waiting else None, reply)]
