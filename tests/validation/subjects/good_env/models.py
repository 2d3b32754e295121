"""What crosses the wire between the good environment and its clients."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from openenv.types import Action, Observation, Private, State

__all__ = ["SignAction", "SignObservation", "SignState"]


class SignAction(Action):
    """A word."""

    say: str = Field(description="The word that the sign asks for.")


class SignObservation(Observation):
    """The next sign."""

    sign: str = Field(description="Its colour; empty at the end.")
    left: int = Field(description="How many signs are still to come, this one too.")


class SignState(State):
    """Where the drive stands."""

    task: str | None = Field(default=None, description="The task, if there is one.")
    word: Annotated[str, Private] = Field(default="", description="What the sign asks for.")
