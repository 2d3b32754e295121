"""What environments cost whoever waits for them: seconds, calls, attempts that came to nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

__all__ = ["Meter", "Reading"]


@dataclass(frozen=True)
class Reading:
    """What a `Meter` has counted.

    Attributes:
        waited_s: Seconds in which at least one environment was waited for: what a trainer loses
            that has nothing else to do meanwhile.
        summed_s: Seconds of all the waits together, also where they overlap.
        sessions: That were opened.
        episodes: That began.
        steps: That were carried out.
        refusals: Actions that an environment, or the list of its tools, did not take.
        retries: Resets that were tried again.
        failures: Episodes that could not begin, or broke off.
    """

    waited_s: float = 0.0
    summed_s: float = 0.0
    sessions: int = 0
    episodes: int = 0
    steps: int = 0
    refusals: int = 0
    retries: int = 0
    failures: int = 0

    def __add__(self, other: Reading) -> Reading:
        """Two of them together."""
        return Reading(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )

    def __sub__(self, earlier: Reading) -> Reading:
        """What has come since an earlier one."""
        return Reading(
            *(getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self))
        )


class Meter:
    """Counts, from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = dict.fromkeys((one.name for one in fields(Reading)), 0)
        self._waits = 0
        self._since = 0.0  # when the first of the waits that go on began; or was last read

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for an environment."""
        began = time.perf_counter()
        with self._lock:
            if not self._waits:
                self._since = began
            self._waits += 1
        try:
            yield
        finally:
            ended = time.perf_counter()
            with self._lock:
                self._waits -= 1
                self._counts["summed_s"] += ended - began
                if not self._waits:
                    self._counts["waited_s"] += ended - self._since

    def count(self, **more: int) -> None:
        """Add to counts, by their names in `Reading`."""
        with self._lock:
            for name, by in more.items():
                self._counts[name] += by

    def read(self) -> Reading:
        """What there is by now; a wait that goes on counts up to now in `waited_s`."""
        with self._lock:
            if self._waits:
                now = time.perf_counter()
                self._counts["waited_s"] += now - self._since
                self._since = now
            return Reading(**self._counts)  # type: ignore[arg-type] # of which most are whole
