"""What has happened in a server, in numbers."""

from __future__ import annotations

__all__ = ["Tally"]


class Tally:
    """Counts of one server."""

    def __init__(self) -> None:
        self.resumes = self.refused_resumes = self.detached = 0
        self.queue_timeouts = self.step_timeouts = self.slow_readers_cut = 0
