"""Actions, observations and state of the Atari environment."""

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
MAX_FRAMESKIP = 1000


class AtariSetting(BaseModel):
    """The game of an episode and its options, named like Gymnasium's arguments."""

    game_name: str = Field(
        default=DEFAULT_GAME, description="The game, by the name of its ROM, such as ms_pacman."
    )
    obs_type: ObsType = Field(
        default=DEFAULT_OBS_TYPE,
        description="The kind of screen: rgb, grayscale, or the 128 bytes of ram.",
    )
    full_action_space: bool = Field(
        default=False,
        description="Allow all actions of the console, 18 in most games, not only those that the "
        "game uses.",
    )
    mode: int | None = Field(default=None, description="The game's mode; null for its own.")
    difficulty: int | None = Field(
        default=None, description="The position of the difficulty switches; null for 0."
    )
    repeat_action_probability: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Sticky actions (Machado et al. 2018): the probability that a frame repeats "
        "the action of the frame before.",
    )
    frameskip: int = Field(
        default=4, ge=1, le=MAX_FRAMESKIP, description="Frames for which an action is held."
    )
    max_frames: int = Field(
        default=DEFAULT_MAX_FRAMES,
        ge=0,
        description="Frames after which an episode is truncated, including those before the first "
        "step; 0 for no limit.",
    )


class AtariAction(Action):
    """An action, held for `frameskip` frames.

    Only `action_id` has an effect. The server or `reset` chooses the game. The other fields exist
    because existing callers send them. The environment refuses a value that is neither the default
    nor that of the running game, because that caller expects another game.
    """

    action_id: int = Field(description="One of the observation's legal_actions.")
    game_name: str = Field(
        default=DEFAULT_GAME, description="The game that the caller expects; chooses nothing."
    )
    obs_type: ObsType = Field(
        default=DEFAULT_OBS_TYPE,
        description="The kind of screen that the caller expects; chooses nothing.",
    )
    full_action_space: bool = Field(
        default=False,
        description="The action space that the caller expects; chooses nothing.",
    )


class AtariObservation(Observation):
    """The console's screen or memory.

    `reward` is 0 after `reset`. After a step, it is the points that the game scored in the step's
    frames. `metadata` has `game_name` and `action_meanings`, a name for each legal action.
    """

    screen: Annotated[npt.NDArray[np.uint8], Array(np.uint8, (None,))] = Field(
        description="The screen or memory as a flat array of values from 0 to 255, row by row."
    )
    screen_shape: list[int] = Field(
        description="Height, width and 3 for rgb; height and width for grayscale; 128 for ram."
    )
    legal_actions: list[int] = Field(
        description="Ids that a step may take, in the order of metadata's action_meanings."
    )
    lives: int = Field(default=0, description="Lives that are left; 0 in a game without lives.")
    episode_frame_number: int = Field(
        default=0, description="Frames of this episode, including those before the first step."
    )
    frame_number: int = Field(
        default=0, description="Frames since `reset` switched the console on."
    )

    @property
    def frame(self) -> npt.NDArray[np.uint8]:
        """The screen in its shape, such as (210, 160, 3); a view of `screen`, not a copy."""
        return self.screen.reshape(self.screen_shape)


class AtariState(AtariSetting, State):
    """The running game and its score. `step_count` counts the steps since `reset`."""

    score: float = Field(default=0.0, description="The sum of the episode's rewards.")


class AtariTask(AtariSetting):
    """A game to play for a high score.

    The scores are those of random play and of a professional games tester in Mnih et al. 2015,
    "Human-level control through deep reinforcement learning", Nature 518, Extended Data Table 2.
    They were measured without sticky actions, so they are only a rough guide.
    """

    id: str = Field(
        description="The id for reset(task=...): the game's name, for variations with mode and "
        "difficulty."
    )
    random_score: float | None = Field(
        default=None, description="The score of random play; null if none was published."
    )
    human_score: float | None = Field(
        default=None, description="The score of a human; null if none was published."
    )
