"""Costs of environments to a trainer: seconds, calls, failed attempts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class MeterReading:
    """Counts of a `Meter` at one moment.

    Attributes:
        waited_s: Seconds in which at least one environment was waited for, and nothing else was
            done meanwhile (see `Meter.elsewhere`): the time that a trainer loses.
        summed_s: Sum of all waits in seconds, even if they overlap.
        sessions: Number of sessions opened.
        episodes: Number of episodes begun.
        steps: Number of steps carried out.
        refusals: Number of actions that were refused by an environment, or that name no tool.
        retries: Number of resets that were tried again.
        failures: Number of episodes that could not begin or broke off.
    """

    waited_s: float = 0.0
    summed_s: float = 0.0
    sessions: int = 0
    episodes: int = 0
    steps: int = 0
    refusals: int = 0
    retries: int = 0
    failures: int = 0

    def __add__(self, other: MeterReading) -> MeterReading:
        """Add the counts of another reading."""
        return MeterReading(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )

    def __sub__(self, earlier: MeterReading) -> MeterReading:
        """Return the counts since an earlier reading."""
        return MeterReading(
            *(getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self))
        )


class Meter:
    """Counts waits and events, from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = dict.fromkeys(
            (one.name for one in fields(MeterReading)), 0
        )
        self._waits = self._elsewhere = 0
        self._since = 0.0  # when one of the counters last changed, or was last read

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for an environment."""
        began = time.perf_counter()
        with self._lock:
            self._settle(began)
            self._waits += 1
        try:
            yield
        finally:
            ended = time.perf_counter()
            with self._lock:
                self._settle(ended)
                self._waits -= 1
                self._counts["summed_s"] += ended - began

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Exclude the time inside from `waited_s`: for example, a model replies meanwhile."""
        with self._lock:
            self._settle(time.perf_counter())
            self._elsewhere += 1
        try:
            yield
        finally:
            with self._lock:
                self._settle(time.perf_counter())
                self._elsewhere -= 1

    def _settle(self, now: float) -> None:
        """Add the time since the last change to `waited_s` if something was waiting."""
        if self._waits and not self._elsewhere:
            self._counts["waited_s"] += now - self._since
        self._since = now

    def count(self, **more: int) -> None:
        """Add to counts, given by their names in `MeterReading`."""
        with self._lock:
            for name, by in more.items():
                self._counts[name] += by

    def read(self) -> MeterReading:
        """Return the current counts; `waited_s` includes waits that are not over."""
        with self._lock:
            self._settle(time.perf_counter())
            return MeterReading(**self._counts)  # type: ignore[arg-type] # of which most are whole


@dataclass(frozen=True)
class StepCost:
    """The cost of a training step.

    Attributes:
        step: Number of the step.
        seconds: Duration of the step in seconds.
        tokens: Number of prompt and completion tokens, as the trainer counts them.
        environments: The costs of the environments during the step.
    """

    step: int
    seconds: float
    tokens: int
    environments: MeterReading

    @property
    def share(self) -> float:
        """The share of the step's time spent waiting for environments, from 0 to 1."""
        return min(1.0, self.environments.waited_s / self.seconds) if self.seconds else 0.0

    def as_logs(self) -> dict[str, float]:
        """Return the costs under the names that trainers log."""
        counted = self.environments
        waited = counted.waited_s
        return {
            "environment/seconds": waited,
            "environment/share": self.share,
            "environment/steps": counted.steps,
            "environment/steps_per_second": counted.steps / waited if waited else 0.0,
            "environment/episodes": counted.episodes,
            "environment/refusals": counted.refusals,
            "environment/retries": counted.retries,
            "environment/failures": counted.failures,
        }

    def __str__(self) -> str:
        counted = self.environments
        waited = counted.waited_s
        rate = f" ({counted.steps / waited:,.0f}/s)" if waited else ""
        said = (
            f"step {self.step}: environments {waited:.2f} s of {self.seconds:.2f} s "
            f"({self.share:.1%}), {counted.steps:,} steps{rate}, {counted.episodes:,} episodes, "
            f"{self.tokens:,} tokens"
        )
        for count, what in ((counted.retries, "retries"), (counted.failures, "failures")):
            said += f", {count:,} {what}" if count or what == "failures" else ""
        return said
