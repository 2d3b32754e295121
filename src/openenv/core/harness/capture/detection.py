"""The old path `openenv.core.harness.capture.detection`; written by scripts/mirrors.py."""

from openenv.capture.detection import APIType as APIType
from openenv.capture.detection import detect as detect
from openenv.capture.detection import extract_model as extract_model

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
