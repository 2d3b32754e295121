"""Echo: the smallest environment there is. It repeats what it is told."""

from .client import EchoEnv
from .models import CallToolAction, EchoAction, EchoObservation, ListToolsAction

__all__ = [
    "CallToolAction",
    "EchoAction",
    "EchoEnv",
    "EchoObservation",
    "ListToolsAction",
]
