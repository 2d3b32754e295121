"""The old path `openenv.core.harness.capture.validate`; written by scripts/mirrors.py."""

from openenv.capture.validate import FATAL as FATAL
from openenv.capture.validate import Finding as Finding
from openenv.capture.validate import INFO as INFO
from openenv.capture.validate import Report as Report
from openenv.capture.validate import WARN as WARN
from openenv.capture.validate import check_rollout as check_rollout
from openenv.capture.validate import check_sequence as check_sequence

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
