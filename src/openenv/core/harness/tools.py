"""The old path `openenv.core.harness.tools`; written by scripts/mirrors.py."""

from openenv.agents.environment import resolve_tool_conflicts as resolve_tool_conflicts

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
