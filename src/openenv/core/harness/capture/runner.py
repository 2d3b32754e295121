"""The old path `openenv.core.harness.capture.runner`; written by scripts/mirrors.py."""

from openenv.capture.runner import CaptureServer as CaptureServer

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
