"""The socket between a server and a worker process, and its frames.

A frame consists of a length, a session number, a kind, the seconds that a call took, and data. All
frames of one tick of the loop are written together. Neither side waits until it can write, so
neither can block the other. A session has one call under way at a time, which bounds the buffers.

Exceptions are passed on as they are if they can be pickled. The server unpickles a worker's data
only with modules that it has already loaded: nothing that a worker sends makes the server import
anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import pickle
import socket
import struct
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, cast

from openenv._internal.incidents import Incident, incident_of, note
from openenv.errors import words

HEAD = struct.Struct("<QIBf")
SOCKET_BUFFER_BYTES = 2**20
READ_BUFFER_BYTES = 2**18
PICKLE_PROTOCOL = 5


class FrameKind(IntEnum):
    """The kinds of frames."""

    # From the server.
    SETUP = 1  # pickled, before anything else: `sys.path`, a grace period, a pickled `Source`
    OPEN = 2  # the session's id: construct its environment
    ENCODE = 3  # pickled: the encoder of replies from now on
    SERVE = 4  # pickled: command, strict, the request's number, its trace
    CANCEL = 5
    CLOSE = 6
    # From the worker.
    READY = 7
    UNFIT = 8  # an error: the worker cannot make environments, and ends
    BYTES = 9  # an answer that is bytes
    VALUE = 10  # any other answer, pickled
    ERROR = 11


class Link(asyncio.BufferedProtocol):
    """An end of the socket between a server and a worker.

    Args:
        receive: Called with each frame: its kind, the session number, its data, and the seconds
            that the answered call took.
        lost: Called when the other end is gone.
    """

    def __init__(self, receive: Callable[[int, int, bytes, float], None], lost: Callable[[], None]):
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._filled = 0
        self._is_flushing = False

    def send(self, kind: FrameKind, session: int, data: bytes = b"", seconds: float = 0.0) -> None:
        """Send a frame, together with all others of this tick."""
        self._unsent += (HEAD.pack(len(data), session, kind, seconds), data)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._transport is not None and self._unsent:
            unsent, self._unsent = self._unsent, []
            self._transport.write(b"".join(unsent))

    def close(self) -> None:
        """Send what is buffered, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        buffer, end, at, needed = self._buffer, self._filled, 0, HEAD.size
        while end - at >= needed:
            length, session, kind, seconds = HEAD.unpack_from(buffer, at)
            body, needed = at + HEAD.size, HEAD.size + length
            if end - at < needed:
                break
            at, needed = at + needed, HEAD.size
            self._receive(kind, session, bytes(memoryview(buffer)[body:at]), seconds)
        self._filled = end - at
        if needed > len(buffer) or (not self._filled and len(buffer) > READ_BUFFER_BYTES):
            self._buffer = bytearray(max(needed, READ_BUFFER_BYTES))
            self._buffer[: self._filled] = buffer[at:end]
        elif at:
            buffer[: self._filled] = buffer[at:end]


def pair() -> tuple[socket.socket, socket.socket]:
    """Make the two ends of a socket for a link."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    return ends


# ------------------------------------------------------------------ values and exceptions


class Crossing(NamedTuple):
    """An exception in a form that can be sent to another process."""

    text: str
    name: str
    pickled: bytes | None
    cause: Crossing | None
    incident: Incident | None


def dump_error(error: BaseException) -> bytes:
    """Pickle an exception together with its causes."""
    return pickle.dumps(_crossing(error), PICKLE_PROTOCOL)


def _crossing(error: BaseException, depth: int = 3) -> Crossing:
    try:
        pickled: bytes | None = pickle.dumps(error, PICKLE_PROTOCOL)
        pickle.loads(pickled or b"")  # nosec B301  # many can be written and not read; our own
    except Exception:
        pickled = None
    cause = error.__cause__
    cause_crossing = _crossing(cause, depth - 1) if cause is not None and depth else None
    name = type(error).__name__
    return Crossing(words(error), name, pickled, cause_crossing, incident_of(error))


def load_error(data: bytes) -> BaseException:
    """Read an exception. One that cannot be unpickled becomes a `RuntimeError` with the same
    text.
    """
    return _arrived(pickle.loads(data))  # nosec B301  # of a worker, which runs as this user


def _arrived(crossing: Crossing) -> BaseException:
    error: BaseException = RuntimeError(f"{crossing.name}: {crossing.text}")
    if crossing.pickled is not None:
        with contextlib.suppress(Exception):
            error = load_value(crossing.pickled)
    if crossing.cause is not None:
        error.__cause__ = _arrived(crossing.cause)
    if crossing.incident is not None:
        note(error, crossing.incident)
    return error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module not in sys.modules:
            raise pickle.UnpicklingError(f"{module} is not loaded here")
        return super().find_class(module, name)


def load_value(data: bytes) -> Any:
    """Read a value that a worker pickled."""
    return _Unpickler(io.BytesIO(data)).load()
