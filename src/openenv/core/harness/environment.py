"""The old path `openenv.core.harness.environment`; written by scripts/mirrors.py."""

from openenv.agents.environment import HarnessAction as HarnessAction
from openenv.agents.environment import HarnessEnvironment as HarnessEnvironment

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
