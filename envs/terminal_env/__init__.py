"""A shell at a terminal as an OpenEnv environment. The client side runs no shell."""

from .client import TerminalEnv
from .models import TerminalAction, TerminalObservation, TerminalState, TerminalTask

__all__ = ["TerminalAction", "TerminalEnv", "TerminalObservation", "TerminalState", "TerminalTask"]
