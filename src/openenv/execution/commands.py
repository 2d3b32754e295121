"""The commands of a session, as data, so that another process can carry them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(slots=True)
class OpenEnvironment:
    """Construct the environment of the session with this id."""

    session_id: str


class Reset(msgspec.Struct):
    """Begin an episode with these arguments."""

    arguments: dict[str, Any] = {}


class Step(msgspec.Struct):
    """Carry out an action (its data or a model) with further arguments."""

    action: Any
    arguments: dict[str, Any] = {}


@dataclass(slots=True)
class GetState:
    """Return the state."""


@dataclass(slots=True)
class Render:
    """Render the episode for people to see."""


@dataclass(slots=True)
class TakeSnapshot:
    """Return a snapshot of the episode as bytes."""


@dataclass(slots=True)
class Restore:
    """Restore a snapshot and return the state; `data` is the data of the request."""

    data: dict[Any, Any]


@dataclass(slots=True)
class CallMethod:
    """Call any other public method of the environment, such as `get_metadata`.

    Attributes:
        method: The method's name.
        arguments: The positional arguments.
        timeout_s: The call's deadline in seconds; None for no limit.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    timeout_s: float | None = None


@dataclass(slots=True)
class GetTransition:
    """Return the transition of the last reset or step; None before the first."""


@dataclass(slots=True)
class GetView:
    """Return a page's view of the last transition, and the action for a person's message."""

    message: Any = None


@dataclass(slots=True)
class CloseEnvironment:
    """Close the environment."""


# The names of the commands for logs and spans.
METHODS: dict[type, str] = {
    Reset: "reset",
    Step: "step",
    GetState: "state",
    Render: "render",
    TakeSnapshot: "snapshot",
    Restore: "restore",
    GetTransition: "transition",
    GetView: "view",
    CloseEnvironment: "close",
}

# All commands except reset and step.
OtherCommand = (
    GetState
    | Render
    | TakeSnapshot
    | Restore
    | CallMethod
    | GetTransition
    | GetView
    | CloseEnvironment
)
Command = Reset | Step | OtherCommand
Encode = Callable[[Any], Any]
