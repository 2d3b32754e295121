"""Detection of clients that do not read, as opposed to clients that were just sent a lot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
PROGRESS_BYTES = 2**16  # a client that reads this much in `PATIENCE_S` is reading, only slowly


class SlowReaderGuard:
    """Cuts off a client whose unread backlog stays too large without progress.

    Args:
        limit: Returns how many bytes may be left unread.
        size: Returns how many bytes are unread.
        cut: Cuts the client off.
    """

    def __init__(
        self, limit: Callable[[], int], size: Callable[[], int], cut: Callable[[], None]
    ) -> None:
        self._limit = limit
        self._size = size
        self._cut = cut
        self._sent = 0
        self._watch: asyncio.TimerHandle | None = None

    def note(self, sent: int) -> None:
        """Note that `sent` bytes were sent; watch a client that has left too much unread."""
        self._sent += sent
        if self._watch is None and self._size() > self._limit():
            self._wait()

    def _wait(self) -> None:
        read = self._sent - self._size()
        self._watch = asyncio.get_running_loop().call_later(PATIENCE_S, self._judge, read)

    def _judge(self, read_before: int) -> None:
        self._watch = None
        size = self._size()
        limit = self._limit()
        if size <= limit:
            return
        if self._sent - size >= read_before + PROGRESS_BYTES:
            self._wait()
            return
        logger.warning(
            "a client was cut off: it has left %d bytes unread for %g s, and the limit is %d "
            "(OPENENV_MAX_UNREAD_BYTES)",
            size,
            PATIENCE_S,
            limit,
        )
        self._cut()

    def stop(self) -> None:
        """Stop watching, since the client has gone."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
