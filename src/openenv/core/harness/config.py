"""The old path `openenv.core.harness.config`; written by scripts/mirrors.py."""

from openenv.agents.config import HarnessConfig as HarnessConfig
from openenv.agents.config import HarnessTransport as HarnessTransport

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
