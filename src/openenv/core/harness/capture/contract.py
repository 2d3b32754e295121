"""The old path `openenv.core.harness.capture.contract`; written by scripts/mirrors.py."""

from openenv.capture.calls import BUDGET_STOP_MESSAGE as BUDGET_STOP_MESSAGE
from openenv.capture.export import measure_retokenization_skew as measure_retokenization_skew
from openenv.capture.export import to_trace_entries as to_trace_entries
from openenv.capture.export import to_training_trace as to_training_trace
from openenv.capture.export import to_turn_records as to_turn_records

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
