"""The old path `openenv.core.harness.capture.export`; written by scripts/mirrors.py."""

from openenv.capture.export import AGENT as AGENT
from openenv.capture.export import AUXILIARY as AUXILIARY
from openenv.capture.export import DISCARDED as DISCARDED
from openenv.capture.export import export_session as export_session
from openenv.capture.export import summarise as summarise

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
