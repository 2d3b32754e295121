"""OpenTelemetry spans of a client's call, the server's request and the environment's call.

A traced call carries its span as W3C's ``traceparent``: in requests of protocol version 1, and in
the header of that name over HTTP. A server does not trace requests without one. A client traces its
calls if the program set up a tracer provider before it created the client, or if OPENENV_OTEL is 1.
Otherwise OpenTelemetry is not imported. Spans contain classes of exceptions and incident ids, never
exception texts.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CoroutineType
from typing import Any, TypeVar

from openenv.settings import traces

T = TypeVar("T")


def tracer() -> Any:
    """Return the tracer of this process; None if calls are not traced.

    Raises:
        ModuleNotFoundError: OPENENV_OTEL is 1, and OpenTelemetry is not installed.
    """
    wanted = traces()
    if wanted is False or (wanted is None and not _is_set_up()):
        return None
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "OPENENV_OTEL=1 needs OpenTelemetry; install it with: pip install 'openenv[otel]'"
        ) from error
    return trace.get_tracer("openenv")


def _is_set_up() -> bool:
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:  # not imported, so no tracer provider was set up
        return False
    return not isinstance(
        api.get_tracer_provider(), (api.ProxyTracerProvider, api.NoOpTracerProvider)
    )


def _written(span: Any) -> str:
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return carrier.get("traceparent", "")


def _context(trace: str) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": trace}, Context())


def _current() -> str:
    """Return the current span's ``traceparent``; empty if there is none."""
    from opentelemetry.trace import get_current_span

    return _written(get_current_span())


def _fail(span: Any, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, type(error).__name__)


# ------------------------------------------------------------------ the client's span


async def traced(tracer: Any, name: str, call: Callable[[str], Awaitable[T]]) -> T:
    """Await `call` within a span, with the ``traceparent`` to send as the argument."""
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        name, None, SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            return await call(_written(span))
        except BaseException as error:
            _fail(span, error)
            raise


# ------------------------------------------------------------------ the server's span


def begin_serving(name: str, trace: str, attributes: Mapping[str, Any]) -> tuple[Any, str]:
    """Begin the span of a request; return the span and the ``traceparent`` to pass on.

    If this process does not trace, the span is None and the text is empty.
    """
    makes_spans = tracer()
    if makes_spans is None:
        return None, ""
    from opentelemetry.trace import SpanKind

    span = makes_spans.start_span(name, _context(trace), SpanKind.SERVER, dict(attributes))
    return span, _written(span)


def end_serving(span: Any, error: BaseException | None) -> None:
    """End a request's span, with the error if any."""
    if error is not None:
        from openenv._internal.incidents import incident_of

        _fail(span, error)
        incident = incident_of(error)
        if incident is not None:
            span.set_attribute("openenv.incident", incident.id)
    span.end()


@contextmanager
def serving(name: str, trace: str | None, attributes: Mapping[str, Any]) -> Iterator[str]:
    """Trace a block that serves a request; yield the ``traceparent`` to pass on.

    If the application traces HTTP requests, the span is a child of the application's.
    """
    outer = (_current() or trace) if tracer() is not None else None
    span, written = begin_serving(name, outer, attributes) if outer else (None, "")
    error: BaseException | None = None
    try:
        yield written
    except BaseException as raised:
        error = raised
        raise
    finally:
        if span is not None:
            end_serving(span, error)


# ------------------------------------------------------------------ the environment's span


def inside(trace: str, name: str, serve: Callable[..., Any], *arguments: Any) -> Any:
    """Call an environment within a span, which ends with the call or the returned coroutine."""
    makes_spans = tracer()
    if makes_spans is None:
        return serve(*arguments)
    from opentelemetry.trace import SpanKind, use_span

    span = makes_spans.start_span(name, _context(trace), SpanKind.INTERNAL)
    result: Any = None
    try:
        with use_span(span, record_exception=False, set_status_on_exception=False):
            result = serve(*arguments)
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        if type(result) is not CoroutineType:
            span.end()
    return _awaited(result, span) if type(result) is CoroutineType else result


async def _awaited(coroutine: Awaitable[T], span: Any) -> T:
    from opentelemetry.trace import use_span

    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            return await coroutine
        except BaseException as error:
            _fail(span, error)
            raise
