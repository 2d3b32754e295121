"""`/metrics`: the counters of a server, in the Prometheus format.

The numbers come from `openenv.execution.metrics` and from the sessions themselves. They are
formatted only on request.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openenv._internal.version import version
from openenv.execution.commands import METHODS, Reset, Step
from openenv.execution.manager import SessionManager
from openenv.execution.metrics import BOUNDS_S, Histogram
from openenv.execution.session import Session, SessionPhase

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

PHASES = (SessionPhase.OPENING, SessionPhase.OPEN, SessionPhase.CLOSING)
REASONS = (
    *("client", "lost", "idle", "evicted", "replaced", "shutdown"),
    *("failed", "abandoned", "crashed", "request"),
)
DESCRIPTIONS = {
    "info": "Which server this is.",
    "sessions": "Sessions that there are, by phase; those of single HTTP requests included.",
    "slots": "Sessions that there may be.",
    "slots_taken": "Slots that are taken.",
    "sessions_detached": "Sessions that wait for their client to come back.",
    "sessions_opened": "Sessions that were begun.",
    "sessions_closed": "Sessions that have ended, by the reason.",
    "resumes": "Connections that a client has resumed.",
    "resumes_refused": "Connections that a client could not resume.",
    "queue_length": "Clients that wait for a slot.",
    "queue_timeouts": "Clients that waited in vain.",
    "queue_wait_seconds": "How long clients waited.",
    "resets": "Resets that were answered.",
    "steps": "Steps that were answered.",
    "errors": "Errors that were answered, by code.",
    "request_seconds": "From the arrival of a request to its answer.",
    "environment_seconds": "Seconds of that in the environment, the action's decoding and the "
    "reply's encoding included.",
    "calls": "Requests that are carried out, and that wait for others of their session.",
    "oldest_call_seconds": "How long the oldest of them is under way.",
    "calls_overdue": "Calls that run past their deadline.",
    "step_timeouts": "Calls that were not done by their deadline.",
    "threads": "Threads that environments are called on.",
    "threads_held": "Threads of several sessions that a call holds past its deadline.",
    "sessions_held_up": "Sessions that share such a thread with the call.",
    "workers": "Worker processes that hold environments.",
    "worker_deaths": "Worker processes that have died.",
    "websocket_bytes": "Bytes of WebSocket messages.",
    "websocket_frames": "WebSocket messages.",
    "slow_readers_cut": "Clients that were cut off since they did not read.",
    "recording_events_lost": "Events that could not be recorded.",
    "recordings_in_debt": "Recordings that lack events, or their end, and cannot say so yet.",
}


def metrics_route(manager: SessionManager) -> Route:
    """Build the route of `/metrics`."""
    registries: list[CollectorRegistry] = []

    async def metrics(request: Request) -> Response:
        from prometheus_client.exposition import choose_encoder

        if not registries:
            registries.append(_registry(manager))
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registries[0]), media_type=content_type)

    return Route("/metrics", metrics, include_in_schema=False)


def _registry(manager: SessionManager) -> CollectorRegistry:
    from prometheus_client.gc_collector import GCCollector
    from prometheus_client.platform_collector import PlatformCollector
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(Metrics(manager))
    for standard in (ProcessCollector, PlatformCollector, GCCollector):
        standard(registry=registry)
    return registry


class Metrics:
    """A collector for `prometheus_client` of the counters of a manager."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._labels = {"environment": manager.spec.name}

    def describe(self) -> list[Metric]:
        """Return nothing, since `collect` describes the metrics."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        gauge, counter, manager = self._gauge, self._counter, self._manager
        counters, sessions, executors = manager.counters, manager.sessions(), manager.executors
        latencies = counters.latencies
        phases = Counter(session.phase for session in sessions)
        yield gauge("info", {version(): 1}, "version")
        yield gauge("sessions", {one.name.lower(): phases[one] for one in PHASES}, "phase")
        yield gauge("slots", manager.max_sessions)
        yield gauge("slots_taken", manager.active_sessions)
        yield gauge("sessions_detached", manager.detached)
        yield counter("sessions_opened", counters.opened)
        yield counter("sessions_closed", {one: counters.closed[one] for one in REASONS}, "reason")
        yield counter("resumes", counters.resumes)
        yield counter("resumes_refused", counters.refused_resumes)
        yield gauge("queue_length", manager.queue_length)
        yield counter("queue_timeouts", counters.queue_timeouts)
        yield self._histogram("queue_wait_seconds", {"": counters.queue_wait})
        yield counter("resets", latencies[Reset].whole.count)
        yield counter("steps", latencies[Step].whole.count)
        yield counter("errors", dict(sorted(counters.errors.items())), "code")
        whole = {METHODS[cls]: latency.whole for cls, latency in latencies.items()}
        yield self._histogram("request_seconds", whole, "method")
        inside = {METHODS[cls]: latency.inside for cls, latency in latencies.items()}
        yield self._histogram("environment_seconds", inside, "method")
        running, waiting, oldest_s = _under_way(sessions)
        yield gauge("calls", {"running": running, "waiting": waiting}, "state")
        yield gauge("oldest_call_seconds", oldest_s)
        yield gauge("calls_overdue", manager.overdue)
        yield counter("step_timeouts", counters.step_timeouts)
        yield gauge("threads", executors.threads)
        held, held_up = executors.held
        yield gauge("threads_held", held)
        yield gauge("sessions_held_up", held_up)
        wanted, ready, deaths = executors.workers
        yield gauge("workers", {"wanted": wanted, "ready": ready}, "state")
        yield counter("worker_deaths", deaths)
        sizes = {"in": counters.bytes_in, "out": counters.bytes_out}
        yield counter("websocket_bytes", sizes, "direction")
        frames = {"in": counters.frames_in, "out": counters.frames_out}
        yield counter("websocket_frames", frames, "direction")
        yield counter("slow_readers_cut", counters.slow_readers_cut)
        if (recordings := manager._recordings) is not None:
            yield counter("recording_events_lost", recordings.lost)
            yield gauge("recordings_in_debt", recordings.debtors)

    def _gauge(self, name: str, values: Any, label: str = "") -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        return self._family(GaugeMetricFamily, name, values, label)

    def _counter(self, name: str, values: Any, label: str = "") -> Metric:
        from prometheus_client.core import CounterMetricFamily

        return self._family(CounterMetricFamily, name, values, label)

    def _histogram(self, name: str, values: Mapping[str, Histogram], label: str = "") -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        buckets = {of: (_buckets(one), one.sum_s) for of, one in values.items()}
        return self._family(HistogramMetricFamily, name, buckets, label)

    def _family(self, form: Any, name: str, values: Any, label: str) -> Metric:
        """Return a metric family with one value, or, if there is a label, one per label value."""
        labels = [*self._labels, *([label] if label else ())]
        family: Metric = form(f"openenv_{name}", DESCRIPTIONS[name], labels=labels)
        for of, value in (values if isinstance(values, dict) else {"": values}).items():
            own = [*self._labels.values(), *([of] if label else ())]
            family.add_metric(own, *(value if isinstance(value, tuple) else (value,)))  # type: ignore[attr-defined]
        return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return cumulative counts, as Prometheus has them: of all durations up to each bound."""
    total, buckets = 0, []
    for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _under_way(sessions: list[Session]) -> tuple[int, int, float]:
    """Return the number of running and waiting calls, and the age in seconds of the oldest."""
    running = waiting = 0
    oldest = now = time.monotonic()
    for session in sessions:
        calls = session.calls()
        running += session.is_running
        waiting += len(calls) - session.is_running
        oldest = min([oldest, *(call.arrived_at for call in calls if call.arrived_at)])
    return running, waiting, now - oldest
