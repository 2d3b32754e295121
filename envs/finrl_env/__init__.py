"""Stock trading by FinRL's rules, on real data or synthetic markets. Names load on first use."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import FinRLEnv
    from .models import FinRLAction, FinRLMetrics, FinRLObservation, FinRLState, FinRLTask

__all__ = [
    "FinRLAction",
    "FinRLEnv",
    "FinRLMetrics",
    "FinRLObservation",
    "FinRLState",
    "FinRLTask",
]


def __getattr__(name: str) -> Any:  # PEP 562
    if name in ("client", "models"):
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        close = difflib.get_close_matches(name, __all__, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}")
    module = ".client" if name == "FinRLEnv" else ".models"
    return getattr(importlib.import_module(module, __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
