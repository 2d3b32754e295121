"""A shell at a terminal as an OpenEnv environment; this side of it runs none."""

from .client import TerminalEnv
from .models import TerminalAction, TerminalObservation, TerminalState, TerminalTask

__all__ = ["TerminalAction", "TerminalEnv", "TerminalObservation", "TerminalState", "TerminalTask"]
