"""Actions, observations and state of the 2048 environment."""

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
"""Moves in the order of OpenSpiel's action ids, 0 to 3."""


class Game2048Action(Action):
    """A move: all tiles slide that way as far as they can, and equal tiles that meet merge."""

    move: Move = Field(description="One of the observation's legal_actions.")


class Game2048Observation(Observation):
    """The player's view of the game.

    `reward` is None after `reset`. After a move, it is the sum of the tiles that the move merged.
    """

    text: str = Field(description="The board and the score in words.")
    board: list[list[int]] = Field(
        description="4 rows of 4 tiles, the upper row first; 0 is an empty cell."
    )
    score: int = Field(description="The sum of all rewards since reset.")
    best_tile: int = Field(description="The highest tile.")
    legal_actions: list[Move] = Field(
        default_factory=list, description="Moves that move a tile; empty at the end."
    )
    goal_reached: bool = Field(
        default=False, description="Whether the episode's goal is on the board."
    )


class Game2048State(State):
    """The state of the game. `step_count` counts moves."""

    score: int = Field(default=0, ge=0, description="The sum of all rewards since reset.")
    best_tile: int = Field(default=0, ge=0, description="The highest tile; 0 before reset.")
    goal: int | None = Field(
        default=None, description="The tile that ends the game; null if the game has no goal."
    )
    max_moves: int | None = Field(
        default=None, description="Moves after which the game is truncated; null is no limit."
    )
    task: str | None = Field(default=None, description="The id of the task being played.")


class Game2048Task(BaseModel):
    """An opening. Chance decides the tiles that are added later."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="The id for reset(task=...), such as 2@0-4@11.")
    split: Literal["train", "test"] = Field(
        description="The task's split; the splits share no task."
    )
    board: tuple[tuple[int, ...], ...] = Field(
        description="The board at the start, with its two tiles."
    )
    instruction: str = Field(description="What to do, in a sentence.")
