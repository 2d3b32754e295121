"""Detection of overridden methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["overrides_method"]


def overrides_method(method: Callable[..., Any], base_method: Callable[..., Any]) -> bool:
    """Return whether `method`, bound or not, differs from `base_method`."""
    return getattr(method, "__func__", method) is not getattr(base_method, "__func__", base_method)
