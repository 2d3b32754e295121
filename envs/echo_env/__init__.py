"""Echo: a minimal environment that repeats messages."""

from .client import EchoEnv
from .models import CallToolAction, EchoAction, EchoObservation, ListToolsAction

__all__ = [
    "CallToolAction",
    "EchoAction",
    "EchoEnv",
    "EchoObservation",
    "ListToolsAction",
]
