"""What a session can be asked to do, as data, so that it can be asked in another process too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = [
    "Call",
    "Close",
    "Command",
    "Encode",
    "GetState",
    "Look",
    "Open",
    "Render",
    "Reset",
    "Restore",
    "Step",
    "TakeSnapshot",
    "View",
]


@dataclass(slots=True)
class Open:
    """Make the environment of the session of this id."""

    session_id: str


class Reset(msgspec.Struct):
    """Begin an episode with these arguments."""

    arguments: dict[str, Any] = {}


class Step(msgspec.Struct):
    """Carry out an action (still data, or already a model) with these further arguments."""

    action: Any
    arguments: dict[str, Any] = {}


@dataclass(slots=True)
class GetState:
    """Read the state."""


@dataclass(slots=True)
class Render:
    """Show people where the episode stands."""


@dataclass(slots=True)
class TakeSnapshot:
    """Write down where the episode stands."""


@dataclass(slots=True)
class Restore:
    """Go back to where the episode stood, and read the state; `data` are a request's."""

    data: dict[Any, Any]


@dataclass(slots=True)
class Call:
    """Call any other public method of the environment, such as `get_metadata`, within so many
    seconds; None is as long as it takes.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    timeout_s: float | None = None


@dataclass(slots=True)
class Look:
    """Tell what the last reset or step has shown; None before the first."""


@dataclass(slots=True)
class View:
    """Tell what a page shows of what the last reset or step has shown; and which action a message
    is, where there is one.
    """

    message: Any = None


@dataclass(slots=True)
class Close:
    """Close the environment."""


Command = Reset | Step | GetState | Render | TakeSnapshot | Restore | Call | Look | View | Close
Encode = Callable[[Any], Any]
