"""The old path `openenv.core.harness.capture.server`; written by scripts/mirrors.py."""

from openenv.capture.calls import BUDGET_STOP_MESSAGE as BUDGET_STOP_MESSAGE
from openenv.capture.calls import SAMPLING_KEYS as SAMPLING_KEYS
from openenv.capture.server import create_app as create_app

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
