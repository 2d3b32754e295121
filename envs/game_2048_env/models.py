"""What crosses the wire between the 2048 environment and its client."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, State

__all__ = [
    "Game2048Action",
    "Game2048Observation",
    "Game2048State",
    "Game2048Task",
    "Move",
]

Move = Literal["up", "right", "down", "left"]
"""In the order of OpenSpiel's action ids, 0 to 3."""


class Game2048Action(Action):
    """One move: all tiles slide that way as far as they can, and equal ones that meet merge."""

    move: Move = Field(description="One of the observation's legal_actions.")


class Game2048Observation(Observation):
    """What the player sees.

    `reward` is None after `reset`; after a move the sum of the tiles that it made by merging.
    """

    text: str = Field(description="The board and the score in words.")
    board: list[list[int]] = Field(
        description="4 rows of 4 tiles, the upper row first; 0 where there is none."
    )
    score: int = Field(description="The sum of all rewards since reset.")
    best_tile: int = Field(description="The highest tile.")
    legal_actions: list[Move] = Field(
        default_factory=list, description="Moves that move something; empty at the end."
    )
    goal_reached: bool = Field(default=False, description="The episode's goal is on the board.")


class Game2048State(State):
    """Where the game stands. `step_count` counts moves."""

    score: int = Field(default=0, ge=0, description="The sum of all rewards since reset.")
    best_tile: int = Field(default=0, ge=0, description="The highest tile; 0 before reset.")
    goal: int | None = Field(
        default=None, description="The tile that ends the game; null plays until no move is left."
    )
    max_moves: int | None = Field(
        default=None, description="Moves after which the game is cut off; null is no limit."
    )
    task: str | None = Field(default=None, description="The id of the task being played.")


class Game2048Task(BaseModel):
    """One opening. The tiles that come later are left to chance."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="What reset(task=...) takes, such as 2@0-4@11.")
    split: Literal["train", "test"] = Field(description="No opening is in both.")
    board: tuple[tuple[int, ...], ...] = Field(
        description="The board to begin with, its two tiles on it."
    )
    instruction: str = Field(description="What to do, in a sentence.")
