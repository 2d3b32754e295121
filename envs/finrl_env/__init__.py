"""Stock trading by FinRL's rules, on real data or on synthetic markets."""

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
