"""Reasoning Gym as an OpenEnv environment. The client side never imports the library."""

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
