"""Readings of a server's `/metrics`, and the changes between two readings."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openenv._internal.net.http import FAILURES, ask
from openenv._internal.net.keys import key_headers
from openenv.cli._console import CommandError

TIMEOUT_S = 5.0
ACCEPT = "application/openmetrics-text; version=1.0.0, text/plain; version=0.0.4; q=0.5"


class MetricsUnreadable(CommandError):
    """A server without readable metrics."""


@dataclass
class MetricsReading:
    """A server's counters at a moment."""

    at: float  # from `time.monotonic`
    version: str = ""
    environments: list[str] = field(default_factory=list)
    values: Counter[str] = field(default_factory=Counter)  # by sample, summed over environments
    errors: Counter[str] = field(default_factory=Counter)  # error answers by code
    # Cumulative number of steps by upper latency bound in seconds.
    buckets: Counter[float] = field(default_factory=Counter)


@dataclass
class MetricsChange:
    """The activity of a server between two readings; rates are per second."""

    version: str
    environments: list[str]
    sessions: int
    slots: int
    queue: int
    steps_per_s: float
    latency_p50_s: float | None  # None without steps
    latency_p99_s: float | None
    errors: dict[str, int]  # error answers between the readings, by code
    bytes_in_per_s: float
    bytes_out_per_s: float
    workers_ready: int
    workers_wanted: int
    worker_deaths: int


def read_metrics(url: str, key: str | None = None) -> MetricsReading:
    """Read the metrics of the server at `url`.

    Raises:
        MetricsUnreadable: No server answers, or the server has no metrics.
    """
    from prometheus_client.openmetrics import parser

    text = _fetch(f"{url.rstrip('/')}/metrics", key)
    parse: Any = parser.text_string_to_metric_families
    reading = MetricsReading(time.monotonic())
    try:
        for family in parse(text):
            for sample in family.samples:
                _add_sample(reading, sample.name, sample.labels, sample.value)
    except ValueError as error:
        raise MetricsUnreadable(f"{url}/metrics cannot be read: {error}") from error
    if not reading.environments:
        raise MetricsUnreadable(f"{url}/metrics is that of another program")
    return reading


def _fetch(url: str, key: str | None) -> str:
    headers = {"Accept": ACCEPT, **key_headers(key, {})}
    if not url.startswith(("http://", "https://")):
        raise MetricsUnreadable(f"{url}: the scheme must be http or https")
    try:
        answer = ask(url, headers, timeout_s=TIMEOUT_S)
    except FAILURES as error:
        raise MetricsUnreadable(f"no server answers at {url}: {error}") from error
    if answer.status != 200:
        why, hint = f"{url} answered with status {answer.status}", None
        if answer.status == 404:
            why = f"there is no {url}: the server counts nothing"
            hint = (
                "servers of the public package and older ones have no /metrics; serve it by "
                "`openenv serve` of this version"
            )
        elif answer.status in (401, 403):
            why = f"{url} requires a key (status {answer.status})"
            hint = "pass it: --api-key-file FILE, or OPENENV_API_KEY"
        raise MetricsUnreadable(why, hint=hint)
    return answer.body.decode(errors="replace")


def _add_sample(
    reading: MetricsReading, name: str, labels: Mapping[str, str], value: float
) -> None:
    if name == "openenv_info":
        reading.version = labels["version"]
        reading.environments.append(labels["environment"])
    elif name == "openenv_errors_total":
        reading.errors[labels["code"]] += int(value)
    elif name == "openenv_request_seconds_bucket":
        if labels["method"] == "step":
            reading.buckets[float(labels["le"])] += value  # type: ignore[assignment]
    else:
        told = "".join(f" {labels[n]}" for n in ("direction", "method", "state") if n in labels)
        reading.values[name + told] += value  # type: ignore[assignment]


def compare_readings(before: MetricsReading, after: MetricsReading) -> MetricsChange:
    """Compute the change between two readings; a restart in between is detected."""
    seconds = max(after.at - before.at, 1e-9)
    if any(after.values[n] < count for n, count in before.values.items() if "_total" in n):
        before = MetricsReading(before.at)

    def rate(name: str) -> float:
        return (after.values[name] - before.values[name]) / seconds

    buckets = {bound: count - before.buckets[bound] for bound, count in after.buckets.items()}
    now = defaultdict(int, {name: int(value) for name, value in after.values.items()})
    return MetricsChange(
        version=after.version,
        environments=sorted(after.environments),
        sessions=now["openenv_slots_taken"],
        slots=now["openenv_slots"],
        queue=now["openenv_queue_length"],
        steps_per_s=rate("openenv_steps_total"),
        latency_p50_s=quantile(buckets, 0.5),
        latency_p99_s=quantile(buckets, 0.99),
        errors=dict(after.errors - before.errors),
        bytes_in_per_s=rate("openenv_websocket_bytes_total in"),
        bytes_out_per_s=rate("openenv_websocket_bytes_total out"),
        workers_ready=now["openenv_workers ready"],
        workers_wanted=now["openenv_workers wanted"],
        worker_deaths=now["openenv_worker_deaths_total"],
    )


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Estimate a quantile from cumulative buckets, as Prometheus's `histogram_quantile` does."""
    total = max(buckets.values(), default=0.0)
    if total <= 0:
        return None
    lower = below = 0.0
    for bound, count in sorted(buckets.items()):
        if count >= share * total:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (share * total - below) / (count - below)
        lower, below = bound, count
    return lower


def describe_duration(seconds: float | None) -> str:
    """Write a time in two or three digits, with its unit; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:,.0f} µs"
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
