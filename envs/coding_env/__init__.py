"""Python as an OpenEnv environment; this side of it runs none."""

from .client import CodingEnv
from .models import CodeAction, CodeObservation, CodeState

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodingEnv"]
