"""Scripts that run in pages: JavaScript, one file for each purpose."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["script"]


@cache
def script(name: str) -> str:
    """Return the source of a script by its name without ``.js``."""
    return (Path(__file__).parent / f"{name}.js").read_text(encoding="utf-8")
