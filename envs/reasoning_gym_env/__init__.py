"""Reasoning Gym's questions as an OpenEnv environment; this side never imports the library."""

from .client import ReasoningGymEnv
from .models import (
    ReasoningGymAction,
    ReasoningGymObservation,
    ReasoningGymState,
    ReasoningGymTask,
)

__all__ = [
    "ReasoningGymAction",
    "ReasoningGymEnv",
    "ReasoningGymObservation",
    "ReasoningGymState",
    "ReasoningGymTask",
]
