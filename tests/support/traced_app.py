"""An environment whose processes trace, each into a file of its own: JSON, a span a line."""

from __future__ import annotations

import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from support.environments import Counter as Traced

__all__ = ["Traced"]

_file = (Path(os.environ["SPANS"]) / str(os.getpid())).open("a", encoding="utf-8")
_provider = TracerProvider()
_provider.add_span_processor(
    SimpleSpanProcessor(
        ConsoleSpanExporter(out=_file, formatter=lambda span: span.to_json(indent=None) + "\n")
    )
)
trace.set_tracer_provider(_provider)
