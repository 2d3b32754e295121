"""The frames that a side of a connection keeps until the other side acknowledges them.

Both sides count the frames they send and receive, and keep a copy of what they sent until the
other side says how many it has. After a broken socket each says so, and the other sends the rest
again: no frame is lost and none comes twice. (So does XMPP: XEP-0198, Stream Management.)
"""

from __future__ import annotations

from openenv.errors import ProtocolError

__all__ = ["ResendBuffer"]

OVERHEAD_BYTES = 48  # of an object that holds a frame


class ResendBuffer:
    """The frames of a side.

    Attributes:
        acknowledged: Frames that the other side has, as far as it has said.
        received: Frames that have come from the other side.
        kept_bytes: Memory of the frames that the other side may not have, roughly.
    """

    __slots__ = ("_kept", "acknowledged", "kept_bytes", "received")

    def __init__(self) -> None:
        self.received = 0
        self.acknowledged = 0
        self.kept_bytes = 0
        self._kept: list[bytes] = []  # mostly of one: a deque takes 600 bytes

    def keep(self, frame: bytes) -> None:
        """Note a frame that is sent now."""
        self._kept.append(frame)
        self.kept_bytes += len(frame) + OVERHEAD_BYTES

    def acknowledge(self, count: int) -> None:
        """Note that the other side has received `count` frames, all in all.

        Raises:
            ProtocolError: It cannot have.
        """
        kept, fresh = self._kept, count - self.acknowledged
        if fresh == len(kept):  # as nearly always
            self.acknowledged = count
            self.kept_bytes = 0
            kept.clear()
        elif fresh > len(kept):
            raise ProtocolError(
                f"{count} frames are said to have come, of {self.acknowledged + len(kept)} sent"
            )
        elif fresh > 0:
            self.acknowledged = count
            self.kept_bytes -= sum(map(len, kept[:fresh])) + fresh * OVERHEAD_BYTES
            del kept[:fresh]

    def forget(self) -> None:
        """Forget all frames that were sent: the other side will never ask for them."""
        self.acknowledged += len(self._kept)
        self._kept.clear()
        self.kept_bytes = 0

    def missing(self, count: int) -> list[bytes]:
        """The frames that the other side lacks, which has received `count`.

        Raises:
            ProtocolError: Frames are asked for that it has said to have.
        """
        if count < self.acknowledged:
            raise ProtocolError(f"frames after {count} are asked for again; they are gone")
        self.acknowledge(count)
        return list(self._kept)
