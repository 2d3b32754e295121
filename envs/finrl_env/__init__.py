"""Stock trading by FinRL's rules as an OpenEnv environment; the names are imported when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        f"{__name__}.client": ["FinRLEnv"],
        f"{__name__}.models": [
            "FinRLAction",
            "FinRLMetrics",
            "FinRLObservation",
            "FinRLState",
            "FinRLTask",
        ],
    },
)
