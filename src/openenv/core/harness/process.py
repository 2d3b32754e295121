"""The old path `openenv.core.harness.process`; written by scripts/mirrors.py."""

from openenv.agents.process import HarnessProcess as HarnessProcess

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
