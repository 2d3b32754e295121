"""`/metrics`: the counters of a server, in the Prometheus format.

The numbers are those of `openenv.execution.metrics`, and what follows from the sessions themselves;
they are put into form when somebody asks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openenv._internal.version import version
from openenv.execution.commands import GetState, Reset, Step
from openenv.execution.manager import SessionManager
from openenv.execution.metrics import BOUNDS_S, Histogram
from openenv.execution.session import Session, SessionPhase

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

__all__ = ["Metrics", "metrics_route"]

METHODS = {Reset: "reset", Step: "step", GetState: "state"}
PHASES = (SessionPhase.OPENING, SessionPhase.OPEN, SessionPhase.CLOSING)
REASONS = (
    *("client", "lost", "idle", "evicted", "replaced", "shutdown"),
    *("failed", "abandoned", "crashed", "request"),
)


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
        """Describe nothing in advance, since `collect` does."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Put the numbers into form."""
        yield from self._server()
        yield from self._sessions()
        yield from self._queue()
        yield from self._calls()
        yield from self._executors()
        yield from self._traffic()
        yield from self._recordings()

    # ------------------------------------------------------------------ what there is

    def _server(self) -> Iterator[Metric]:
        yield self._gauge(
            "openenv_info", "Which server this is.", {("version",): {(version(),): 1}}
        )

    def _sessions(self) -> Iterator[Metric]:
        manager, counters = self._manager, self._manager.counters
        phases = Counter(session.phase for session in manager.sessions())
        yield self._gauge(
            "openenv_sessions",
            "Sessions that there are, by phase; those of single HTTP requests included.",
            {("phase",): {(phase.name.lower(),): phases[phase] for phase in PHASES}},
        )
        yield self._gauge("openenv_slots", "Sessions that there may be.", manager.max_sessions)
        yield self._gauge("openenv_slots_taken", "Slots that are taken.", manager.active_sessions)
        yield self._gauge(
            "openenv_sessions_detached",
            "Sessions that wait for their client to come back.",
            self._manager.detached,
        )
        yield self._counter("openenv_sessions_opened", "Sessions that were begun.", counters.opened)
        yield self._counter(
            "openenv_sessions_closed",
            "Sessions that have ended, by the reason.",
            {("reason",): {(reason,): counters.closed[reason] for reason in REASONS}},
        )
        yield self._counter(
            "openenv_resumes", "Connections that a client has resumed.", counters.resumes
        )
        yield self._counter(
            "openenv_resumes_refused",
            "Connections that a client could not resume.",
            counters.refused_resumes,
        )

    def _queue(self) -> Iterator[Metric]:
        counters = self._manager.counters
        yield self._gauge(
            "openenv_queue_length", "Clients that wait for a slot.", self._manager.queue_length
        )
        yield self._counter(
            "openenv_queue_timeouts", "Clients that waited in vain.", counters.queue_timeouts
        )
        yield self._histogram(
            "openenv_queue_wait_seconds", "How long clients waited.", {(): counters.queue_wait}
        )

    def _calls(self) -> Iterator[Metric]:
        counters, latencies = self._manager.counters, self._manager.counters.latencies
        answered = {cls: latency.whole.count for cls, latency in latencies.items()}
        yield self._counter("openenv_resets", "Resets that were answered.", answered[Reset])
        yield self._counter("openenv_steps", "Steps that were answered.", answered[Step])
        yield self._counter(
            "openenv_errors",
            "Errors that were answered, by code.",
            {("code",): {(code,): count for code, count in sorted(counters.errors.items())}},
        )
        yield self._histogram(
            "openenv_request_seconds",
            "From the arrival of a request to its answer.",
            {(METHODS[cls],): latency.whole for cls, latency in latencies.items()},
        )
        yield self._histogram(
            "openenv_environment_seconds",
            "What of it was spent in the environment, the action's decoding and the reply's "
            "encoding included.",
            {(METHODS[cls],): latency.inside for cls, latency in latencies.items()},
        )
        running, waiting, oldest_s = _under_way(self._manager.sessions())
        yield self._gauge(
            "openenv_calls",
            "Requests that are carried out, and that wait for others of their session.",
            {("state",): {("running",): running, ("waiting",): waiting}},
        )
        yield self._gauge(
            "openenv_oldest_call_seconds", "How long the oldest of them is under way.", oldest_s
        )
        yield self._gauge(
            "openenv_calls_overdue", "Calls that run past their deadline.", self._manager.overdue
        )
        yield self._counter(
            "openenv_step_timeouts",
            "Calls that were not done by their deadline.",
            counters.step_timeouts,
        )

    def _executors(self) -> Iterator[Metric]:
        executors = self._manager.executors
        wanted, ready, deaths = executors.workers
        yield self._gauge(
            "openenv_threads", "Threads that environments are called on.", executors.threads
        )
        held, held_up = executors.held
        yield self._gauge(
            "openenv_threads_held",
            "Threads of several sessions that a call holds past its deadline.",
            held,
        )
        yield self._gauge(
            "openenv_sessions_held_up", "Sessions that share such a thread with the call.", held_up
        )
        yield self._gauge(
            "openenv_workers",
            "Worker processes that hold environments.",
            {("state",): {("wanted",): wanted, ("ready",): ready}},
        )
        yield self._counter("openenv_worker_deaths", "Worker processes that have died.", deaths)

    def _recordings(self) -> Iterator[Metric]:
        recordings = self._manager._recordings
        if recordings is None:
            return
        yield self._counter(
            "openenv_recording_events_lost",
            "Events that could not be recorded.",
            recordings.lost,
        )
        yield self._gauge(
            "openenv_recordings_in_debt",
            "Recordings that lack events, or their end, and cannot say so yet.",
            recordings.debtors,
        )

    def _traffic(self) -> Iterator[Metric]:
        counters = self._manager.counters
        yield self._counter(
            "openenv_websocket_bytes",
            "Bytes of WebSocket messages.",
            {("direction",): {("in",): counters.bytes_in, ("out",): counters.bytes_out}},
        )
        yield self._counter(
            "openenv_websocket_frames",
            "WebSocket messages.",
            {("direction",): {("in",): counters.frames_in, ("out",): counters.frames_out}},
        )
        yield self._counter(
            "openenv_slow_readers_cut",
            "Clients that were cut off since they did not read.",
            counters.slow_readers_cut,
        )

    # ------------------------------------------------------------------ the forms of it

    def _gauge(self, name: str, words: str, values: Any) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        return self._filled(GaugeMetricFamily, name, words, values)

    def _counter(self, name: str, words: str, values: Any) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        return self._filled(CounterMetricFamily, name, words, values)

    def _filled(self, form: Callable[..., Any], name: str, words: str, values: Any) -> Metric:
        """A family of one value; or, given as ``{names: {labels: value}}``, of several."""
        by_labels = values if isinstance(values, dict) else {(): {(): values}}
        (names, samples), *_ = by_labels.items()
        family: Metric = form(name, words, labels=[*self._labels, *names])
        for labels, value in samples.items():
            family.add_metric([*self._labels.values(), *labels], value)  # type: ignore[attr-defined]
        return family

    def _histogram(
        self, name: str, words: str, histograms: dict[tuple[str, ...], Histogram]
    ) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        names = ["method"] if any(histograms) else []
        family = HistogramMetricFamily(name, words, labels=[*self._labels, *names])
        for labels, histogram in histograms.items():
            family.add_metric(
                [*self._labels.values(), *labels], _buckets(histogram), histogram.sum_s
            )
        return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """The counts in Prometheus's manner: of all durations up to a bound."""
    total, buckets = 0, []
    for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _under_way(sessions: list[Session]) -> tuple[int, int, float]:
    running = waiting = 0
    oldest = now = time.monotonic()
    for session in sessions:
        works = session.calls()
        is_running = session.is_running
        running += is_running
        waiting += len(works) - is_running
        for work in works:
            if work.arrived_at:
                oldest = min(oldest, work.arrived_at)
    return running, waiting, now - oldest
