"""The old path `openenv.core.tools.local_python_executor`; written by scripts/mirrors.py."""

from openenv.sandbox.py_executor import PyExecutor as PyExecutor

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
