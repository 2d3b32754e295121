"""Messages that come in several WebSocket frames, on either side of a connection."""

from __future__ import annotations

from picows import WSCloseCode, WSMsgType
from picows.common import WSProtocolError

CONTINUATION = WSMsgType.CONTINUATION


class Fragments:
    """A buffer that joins the fragments of a message (RFC 6455, section 5.4).

    Args:
        max_bytes: Maximum size of a message in bytes; None for no limit.

    Attributes:
        is_open: Whether a message has begun and not ended.
    """

    MAX_FRAGMENTS = 100_000  # per message: empty fragments could otherwise exhaust memory

    __slots__ = ("_kind", "_max_bytes", "_parts", "_size", "is_open")

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._kind = CONTINUATION
        self._parts: list[bytes] = []
        self._size = 0
        self.is_open = False

    def add(
        self, kind: WSMsgType, payload: bytes, is_last: bool
    ) -> tuple[WSMsgType, bytearray] | None:
        """Add the next data frame; return the message's kind and bytes after the last frame.

        Raises:
            WSProtocolError: The frame is out of order, or the message is too long.
        """
        if (kind is CONTINUATION) is not bool(self._parts):
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "fragments are out of order")
        if not self._parts:
            self._kind = kind
        self._parts.append(payload)
        self.is_open = True
        self._size += len(payload)
        limit = self._max_bytes
        if limit is not None and self._size > limit:
            raise WSProtocolError(WSCloseCode.MESSAGE_TOO_BIG, f"over {limit} bytes")
        if len(self._parts) > self.MAX_FRAGMENTS:
            why = f"in too many fragments; at most {self.MAX_FRAGMENTS}"
            raise WSProtocolError(WSCloseCode.MESSAGE_TOO_BIG, why)
        if not is_last:
            return None
        whole = bytearray().join(self._parts)
        self._parts, self._size, self.is_open = [], 0, False
        return self._kind, whole
