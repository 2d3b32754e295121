"""Telling whether a class has its own version of a method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["overrides_method"]


def overrides_method(method: Callable[..., Any], base_method: Callable[..., Any]) -> bool:
    """Say whether `method` (bound to an instance, or of a class) is another than `base_method`."""
    return getattr(method, "__func__", method) is not getattr(base_method, "__func__", base_method)
