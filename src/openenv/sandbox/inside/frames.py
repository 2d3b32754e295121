"""Frames between a sandbox and the holder: a JSON header and bytes.

A frame has the lengths of the header and of the bytes (4 bytes each, big-endian), the header, and
the bytes. The holder does not trust frames: lengths are bounded before anything is read.
"""

from __future__ import annotations

import json
import struct
from typing import Any

LENGTHS = struct.Struct(">II")
MAX_HEADER = 2**16
MAX_BODY = 2**20


class FrameError(Exception):
    """Raised for received bytes that are not a valid frame."""


def encode(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a frame as bytes."""
    head = json.dumps(header).encode()
    if len(head) > MAX_HEADER or len(body) > MAX_BODY:
        raise FrameError(f"a frame of {len(head)} and {len(body)} bytes is too long")
    return LENGTHS.pack(len(head), len(body)) + head + body


class Decoder:
    """A decoder of frames from bytes that arrive in any pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._bytes += data

    def next(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the next frame, or None if it is incomplete.

        Raises:
            FrameError: The bytes are not a frame. Nothing after them can be read either.
        """
        if len(self._bytes) < LENGTHS.size:
            return None
        head_length, body_length = LENGTHS.unpack_from(self._bytes)
        if head_length > MAX_HEADER or body_length > MAX_BODY:
            raise FrameError(f"a frame of {head_length} and {body_length} bytes is too long")
        body_at = LENGTHS.size + head_length
        end = body_at + body_length
        if len(self._bytes) < end:
            return None
        try:
            header = json.loads(self._bytes[LENGTHS.size : body_at])
        except (ValueError, RecursionError) as error:
            raise FrameError(f"the header of a frame is no JSON: {error}") from None
        if not isinstance(header, dict):
            raise FrameError("the header of a frame is no object")
        body = bytes(self._bytes[body_at:end])
        del self._bytes[:end]
        return header, body
