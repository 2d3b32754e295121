"""What crosses the wire between the Atari environment and its client."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from openenv.arrays import Array
from openenv.types import Action, Observation, State

__all__ = [
    "AtariAction",
    "AtariObservation",
    "AtariSetting",
    "AtariState",
    "AtariTask",
    "ObsType",
]

ObsType = Literal["rgb", "grayscale", "ram"]

DEFAULT_GAME = "pong"
DEFAULT_OBS_TYPE: ObsType = "rgb"
# Half an hour of play at 60 frames a second, as in Gymnasium's `ALE/...-v5`.
DEFAULT_MAX_FRAMES = 108_000
LONGEST_FRAMESKIP = 1000


class AtariSetting(BaseModel):
    """What is played in an episode, and how; the fields are Gymnasium's arguments."""

    game_name: str = Field(
        default=DEFAULT_GAME, description="The game, by the name of its ROM, such as ms_pacman."
    )
    obs_type: ObsType = Field(
        default=DEFAULT_OBS_TYPE, description="What a screen is: rgb, grayscale, or 128 of ram."
    )
    full_action_space: bool = Field(
        default=False,
        description="All actions of the console, 18 in most games, not only those that the game "
        "makes use of.",
    )
    mode: int | None = Field(default=None, description="The game's mode; null for its own.")
    difficulty: int | None = Field(
        default=None, description="The position of the difficulty switches; null for 0."
    )
    repeat_action_probability: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Chance of each frame to go on with the frame's before action: sticky actions, "
        "of Machado et al. 2018.",
    )
    frameskip: int = Field(
        default=4, ge=1, le=LONGEST_FRAMESKIP, description="Frames for which an action is held."
    )
    max_frames: int = Field(
        default=DEFAULT_MAX_FRAMES,
        ge=0,
        description="Frames after which an episode is truncated, those of its beginning counted; "
        "0 for no limit.",
    )


class AtariAction(Action):
    """One action, held for `frameskip` frames.

    Only `action_id` moves anything. What is played is chosen by the server or by `reset`; the
    other fields are here because existing callers send them. One that is neither the default nor
    what is being played is refused, as the caller is playing something else.
    """

    action_id: int = Field(description="One of the observation's legal_actions.")
    game_name: str = Field(
        default=DEFAULT_GAME, description="The game the caller believes to play; chooses nothing."
    )
    obs_type: ObsType = Field(
        default=DEFAULT_OBS_TYPE,
        description="The kind of observation the caller believes to get; chooses nothing.",
    )
    full_action_space: bool = Field(
        default=False,
        description="The action space the caller believes to act in; chooses nothing.",
    )


class AtariObservation(Observation):
    """What is on the screen, or in the memory.

    `reward` is 0 after `reset`; after a step it is what the game has scored in its frames.
    `metadata` has `game_name` and `action_meanings`, a name for each legal action.
    """

    screen: Annotated[npt.NDArray[np.uint8], Array(np.uint8, (None,))] = Field(
        description="The values of 0 to 255 of the screen or the memory, flat, row by row."
    )
    screen_shape: list[int] = Field(
        description="Height, width and 3 for rgb; height and width for grayscale; 128 for ram."
    )
    legal_actions: list[int] = Field(
        description="Ids that a step may take; those of metadata's action_meanings, in order."
    )
    lives: int = Field(
        default=0, description="Lives that are left; 0 in a game that does not count them."
    )
    episode_frame_number: int = Field(
        default=0, description="Frames of this episode, those of its beginning counted."
    )
    frame_number: int = Field(
        default=0, description="Frames since the console was switched on, which `reset` does."
    )

    @property
    def frame(self) -> npt.NDArray[np.uint8]:
        """The screen in its shape, such as (210, 160, 3); a view of `screen`, not a copy."""
        return self.screen.reshape(self.screen_shape)


class AtariState(AtariSetting, State):
    """What is played, and where it stands; `step_count` counts the steps since `reset`."""

    score: float = Field(default=0.0, description="The sum of the episode's rewards.")


class AtariTask(AtariSetting):
    """A game to play as well as one can; `reset(task=...)` begins it.

    The scores are those of Mnih et al. 2015, "Human-level control through deep reinforcement
    learning", Nature 518, Extended Data Table 2: of random play, and of a professional games
    tester. They were measured without sticky actions, so they are a rough guide, no more.
    """

    id: str = Field(description="The game's name, and where it is not its own, mode and switches.")
    random_score: float | None = Field(default=None, description="Null where none was published.")
    human_score: float | None = Field(default=None, description="Null where none was published.")
