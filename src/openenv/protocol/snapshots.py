"""Snapshots as clients hold them, of two kinds, and the journal behind a replay.

Both kinds have the same head: eight bytes that name the format, one byte with its version, one with
the kind, and four with a CRC-32 of the rest.

- ``S``: a native snapshot, returned by the environment's own `snapshot`.
- ``J``: a journal: the last reset, the steps since, and their outcomes. Restoring it repeats all of
  them.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from openenv.errors import ErrorCode, InvalidSnapshot, NotSupported, ServerError
from openenv.protocol.messages import Request
from openenv.protocol.records import StepOutcome, digest
from openenv.protocol.v1.codec import MsgpackCodec, codec_named

MAGIC, FORMAT_VERSION = b"\x89OpenEnv", 1
NATIVE, JOURNAL = b"S", b"J"
HEAD_BYTES = len(MAGIC) + 1 + 1 + 4

# Default limit for the steps of an episode that a journal holds.
MAX_STEPS = 100_000

# Errors of the environment itself; after any other error, the environment's state is unknown.
ANSWERS = (ErrorCode.EXECUTION_ERROR.value, ErrorCode.VALIDATION_ERROR.value)


def wrap(kind: bytes, body: bytes) -> bytes:
    """Write a snapshot: its head and its content."""
    head = MAGIC + bytes([FORMAT_VERSION]) + kind
    return b"".join((head, zlib.crc32(body).to_bytes(4, "big"), body))


def unwrap(data: bytes) -> tuple[bytes, bytes]:
    """Read the kind and the content of a snapshot.

    Raises:
        InvalidSnapshot: The bytes are not a snapshot, are damaged, or are of a later version.
        TypeError: `data` is not bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a snapshot is bytes, not {type(data).__name__}")
    data = bytes(data)
    if not data.startswith(MAGIC):
        raise InvalidSnapshot("these bytes are no snapshot: they were not made by snapshot()")
    if len(data) < HEAD_BYTES:
        raise InvalidSnapshot("the snapshot is cut off")
    version, kind = data[len(MAGIC)], data[len(MAGIC) + 1 : len(MAGIC) + 2]
    if version != FORMAT_VERSION or kind not in (NATIVE, JOURNAL):
        raise InvalidSnapshot("the snapshot was written by a later version of openenv")
    body = data[HEAD_BYTES:]
    if zlib.crc32(body) != int.from_bytes(data[HEAD_BYTES - 4 : HEAD_BYTES], "big"):
        raise InvalidSnapshot("the snapshot is damaged: it is not what snapshot() has returned")
    return kind, body


# ------------------------------------------------------------------ journals


class JournalEntry(msgspec.Struct, array_like=True):
    """A reset or a step, and its outcome.

    Attributes:
        frame: The request, as version 1 writes it.
        error: The code of the error that answered it, or None.
        observation: A digest of the observation.
        reward: A digest of the reward.
        done: Whether the episode was over.
        truncated: Whether the episode was truncated.
    """

    frame: bytes
    error: str | None = None
    observation: bytes = b""
    reward: bytes = b""
    done: bool = False
    truncated: bool = False

    def request(self) -> Request:
        """Return the request to repeat.

        Raises:
            InvalidSnapshot: The request is neither a reset nor a step.
        """
        try:
            (request,) = _codec.decode_requests(self.frame)
        except ValueError as error:
            raise InvalidSnapshot(f"the journal has an entry that is no request: {error}") from None
        if request.type not in ("reset", "step"):
            raise InvalidSnapshot(
                f"the journal has an entry that is neither reset nor step: {request.type}"
            )
        return request

    def difference(self, other: JournalEntry) -> str | None:
        """Return the name of the first field that differs in another entry; None if equal."""
        for name in ("error", "observation", "reward", "done", "truncated"):
            if getattr(self, name) != getattr(other, name):
                return name
        return None

    @classmethod
    def of(cls, frame: bytes, outcome: dict[str, Any] | ServerError) -> JournalEntry:
        """Return the entry for a request and its outcome: an observation's payload, or an error.

        Raises:
            ServerError: The error is not one of the environment's own.
        """
        if isinstance(outcome, ServerError):
            if outcome.code not in ANSWERS:
                raise outcome
            return cls(frame, outcome.code)
        seen = StepOutcome.of(outcome)
        observation, reward = digest(seen.observation), digest(seen.reward)
        return cls(frame, None, observation, reward, seen.done, seen.truncated)


class _Written(msgspec.Struct):
    """A journal as written: the protocol version of the values, and the entries."""

    protocol: int
    entries: list[JournalEntry]


_codec = codec_named(MsgpackCodec.name)


def frame_of(request: Request) -> bytes:
    """Encode a request before it is sent, while its arrays still have their values."""
    return _codec.encode_requests([request])


class Journal:
    """The requests of a session since the last reset, so that another session can repeat them."""

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps}; it must be at least 1")
        self.max_steps = max_steps
        self._entries: list[JournalEntry] = []
        self._gap: str | None = "no episode has begun since the journal is kept"

    def note(self, request: Request, entry: JournalEntry) -> None:
        """Add a request and its outcome."""
        if request.type == "reset":
            if entry.error is None:
                self._begin(request, entry)
            elif self._gap is None:  # after a failed reset the old episode may go on
                self._entries.append(entry)
        elif self._gap is None and len(self._entries) > self.max_steps:
            self.interrupt(
                f"the episode has more than {self.max_steps} steps, which is what the journal "
                "holds; keep_journal(max_steps=...) sets another limit"
            )
        elif self._gap is None:
            self._entries.append(entry)

    def _begin(self, request: Request, entry: JournalEntry) -> None:
        self._entries, self._gap = [entry], None
        if request.data.get("seed") is None:
            self.interrupt(
                "the episode was begun without a seed, so nobody can begin the same one again; "
                "call reset(seed=...)"
            )

    def interrupt(self, why: str) -> None:
        """Note that this episode cannot be replayed, and why."""
        self._entries, self._gap = [], why

    def write(self, protocol: int) -> bytes:
        """Write the journal as a snapshot.

        Raises:
            NotSupported: The episode cannot be replayed.
        """
        if self._gap is not None:
            raise NotSupported(f"this session cannot be replayed: {self._gap}", feature="replay")
        body = msgspec.msgpack.encode(_Written(protocol, self._entries))
        return wrap(JOURNAL, body)

    def adopt(self, entries: list[JournalEntry]) -> None:
        """Continue from the entries of another journal."""
        self._entries, self._gap = list(entries), None


def read_journal(body: bytes, protocol: int) -> list[JournalEntry]:
    """Read a journal that `Journal.write` wrote.

    Raises:
        InvalidSnapshot: The content is not such a journal, or it is empty.
        NotSupported: The journal was kept over another protocol version than the current one.
    """
    try:
        written = msgspec.msgpack.decode(body, type=_Written)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidSnapshot(f"the snapshot holds no journal: {error}") from None
    if not written.entries:
        raise InvalidSnapshot("the snapshot holds an empty journal")
    if written.protocol != protocol:
        raise NotSupported(
            f"the journal was kept over protocol version {written.protocol}, and version "
            f"{protocol} is spoken now, in which arrays look otherwise",
            feature="replay",
        )
    return written.entries
