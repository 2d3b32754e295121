"""Snapshots as clients hold them, of two kinds, and the journal behind a replay.

Both begin alike: eight bytes that name the format, one with its version, one with the kind, and
four of a CRC-32 of what follows.

- ``S``: what the environment's own `snapshot` has returned.
- ``J``: a journal: the last reset, the steps since, and what they came to. To restore it is to do
  all of that again.
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

# Steps of an episode that a journal holds, where nobody says otherwise.
MAX_STEPS = 100_000

# What the environment itself answers with; after any other error nobody knows what it has done.
ANSWERS = (ErrorCode.EXECUTION_ERROR.value, ErrorCode.VALIDATION_ERROR.value)


def wrap(kind: bytes, body: bytes) -> bytes:
    """Write a snapshot of a kind."""
    head = MAGIC + bytes([FORMAT_VERSION]) + kind
    return b"".join((head, zlib.crc32(body).to_bytes(4, "big"), body))


def unwrap(data: bytes) -> tuple[bytes, bytes]:
    """Read the kind and the content of a snapshot.

    Raises:
        InvalidSnapshot: It is none, or is damaged, or was written by a later version.
        TypeError: It is not bytes.
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
    """A reset or a step, and the result.

    Attributes:
        frame: The request, as version 1 writes it.
        error: The code of the error that it was answered with, or None.
        observation: A digest of the observation.
        reward: A digest of the reward.
        done: The episode was over.
        truncated: It was cut off.
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
            InvalidSnapshot: It is no reset and no step.
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
        """Name what another entry has otherwise; None if nothing."""
        for name in ("error", "observation", "reward", "done", "truncated"):
            if getattr(self, name) != getattr(other, name):
                return name
        return None

    @classmethod
    def of(cls, frame: bytes, outcome: dict[str, Any] | ServerError) -> JournalEntry:
        """Note what a request came to: the payload of an observation, or an error.

        Raises:
            ServerError: It is none of the environment's own.
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
    """Write a request down before it is sent, while its arrays are what they are."""
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
        """Note what a request came to."""
        if request.type == "reset":
            if entry.error is None:
                self._begin(request, entry)
            elif self._gap is None:  # the old episode may go on, and the environment knows how
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
        """Note that this episode cannot be done again."""
        self._entries, self._gap = [], why

    def write(self, protocol: int) -> bytes:
        """Write the journal as a snapshot.

        Raises:
            NotSupported: The episode cannot be done again.
        """
        if self._gap is not None:
            raise NotSupported(f"this session cannot be replayed: {self._gap}", feature="replay")
        body = msgspec.msgpack.encode(_Written(protocol, self._entries))
        return wrap(JOURNAL, body)

    def adopt(self, entries: list[JournalEntry]) -> None:
        """Go on from what another journal has noted."""
        self._entries, self._gap = list(entries), None


def read_journal(body: bytes, protocol: int) -> list[JournalEntry]:
    """Read what `Journal.write` has written.

    Raises:
        InvalidSnapshot: It has not written this.
        NotSupported: Values look otherwise in the protocol version that is spoken now.
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
