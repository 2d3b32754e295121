"""The games of the Atari 2600, played by the Arcade Learning Environment."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from ale_py import ALEInterface
from pydantic import ValidationError

from openenv.environment import Environment, scored
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import (
    AtariAction,
    AtariObservation,
    AtariSetting,
    AtariState,
    AtariTask,
    ObsType,
)
from . import snapshots
from .episode import Episode, generator_seed
from .games import Console, give_back, points_of, take
from .tasks import SPLITS, task_named, tasks_of

__all__ = ["AtariEnvironment"]

Screen = npt.NDArray[np.uint8]

VARIABLES = {
    "game_name": "ATARI_GAME",
    "obs_type": "ATARI_OBS_TYPE",
    "full_action_space": "ATARI_FULL_ACTION_SPACE",
    "mode": "ATARI_MODE",
    "difficulty": "ATARI_DIFFICULTY",
    "repeat_action_probability": "ATARI_REPEAT_ACTION_PROB",
    "frameskip": "ATARI_FRAMESKIP",
    "max_frames": "ATARI_MAX_FRAMES",
}
"""Where each field of `AtariSetting` is taken from, when nobody says."""

_SCREENS: dict[ObsType, Callable[[ALEInterface], Screen]] = {
    "rgb": ALEInterface.getScreenRGB,
    "grayscale": ALEInterface.getScreenGrayscale,
    "ram": ALEInterface.getRAM,
}

# What means something in one game only.
_OF_ONE_GAME = ("mode", "difficulty")

# What a task leaves to the one who plays it.
_NOT_OF_A_TASK = {"obs_type"}

_SHAPE_OF_ACTION = AtariAction.model_fields


class AtariEnvironment(Environment[AtariAction, AtariObservation, AtariState]):
    """A game of the Atari 2600: Bellemare et al. 2013, arXiv:1207.4708.

    What the agent does is held for `frameskip` frames of a sixtieth of a second. The console is
    deterministic: seeds matter only where `repeat_action_probability` is above 0.

    Args:
        game_name: The name of a ROM, such as ``space_invaders``: one of `games.GAMES`.
        obs_type: ``rgb``, ``grayscale`` or ``ram``.
        full_action_space: Every action of the console, instead of those of use in the game.
        mode: One of the game's modes.
        difficulty: One of its positions of the difficulty switches.
        repeat_action_probability: Of sticky actions, 0 to 1.
        frameskip: Frames a step, 1 to 1000.
        max_frames: Frames after which an episode is truncated; 0 for no limit.

    What is None is taken from the variable in `VARIABLES`, or else is the default of
    `AtariSetting`.

    Raises:
        ValueError: There is no such game, mode, ....
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    # The range is the game's: `reset` declares it.
    REWARD = RewardSpec("per_step", components=("points",))

    def __init__(
        self,
        game_name: str | None = None,
        obs_type: ObsType | None = None,
        full_action_space: bool | None = None,
        mode: int | None = None,
        difficulty: int | None = None,
        repeat_action_probability: float | None = None,
        frameskip: int | None = None,
        max_frames: int | None = None,
    ) -> None:
        super().__init__()
        chosen = _given(
            game_name=game_name,
            obs_type=obs_type,
            full_action_space=full_action_space,
            mode=mode,
            difficulty=difficulty,
            repeat_action_probability=repeat_action_probability,
            frameskip=frameskip,
            max_frames=max_frames,
        )
        self._default = _setting({**_from_environ(), **chosen})
        self._console = _console_for(self._default)
        self._episode: Episode | None = None
        self._episode_id: str | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | Mapping[str, Any] | AtariTask | None = None,
        game_name: str | None = None,
        obs_type: ObsType | None = None,
        full_action_space: bool | None = None,
        mode: int | None = None,
        difficulty: int | None = None,
        repeat_action_probability: float | None = None,
        frameskip: int | None = None,
        max_frames: int | None = None,
    ) -> AtariObservation:
        """Switch the console on.

        Args:
            seed: Determines which actions stick; any integer, with the same effect as in
                Gymnasium's `ALE/...-v5`. None draws one.
            episode_id: Becomes `state.episode_id`; None makes one up.
            task: A task of `list_tasks`, or its id: a game, and all that follows but `obs_type`.
            game_name: Another game for this episode, and so on, as for the constructor; None
                takes the environment's own. A mode or difficulty of its own it has for its own
                game only.

        Returns:
            The first observation; its reward is 0.

        Raises:
            Refused: There is no such game, mode, ..., or both it and a task are given. The running
                episode goes on.
        """
        chosen = _given(
            game_name=game_name,
            obs_type=obs_type,
            full_action_space=full_action_space,
            mode=mode,
            difficulty=difficulty,
            repeat_action_probability=repeat_action_probability,
            frameskip=frameskip,
            max_frames=max_frames,
        )
        setting = self._chosen(chosen) if task is None else self._of_task(task, chosen)
        self._use(self._console_of(setting))
        self.REWARD = RewardSpec(  # type: ignore[misc]  # of this game's points
            "per_step", points_of(setting.game_name), ("points",)
        )
        self._episode = Episode(self._console, setting, generator_seed(seed))
        self._episode_id = episode_id or str(uuid.uuid4())
        return scored(self._observe(), 0.0)

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: AtariAction
    ) -> AtariObservation:
        """Hold an action for the setting's `frameskip` frames, or to the end of the game.

        Raises:
            Refused: There is no running episode; or the action is none of this game, or names
                another. Nothing changes.
        """
        points = self._playable(action).play(action.action_id)
        return scored(self._observe(), Score(points, {"points": points}))

    @property
    def state(self) -> AtariState:
        """What is played, how many steps were made since `reset`, and their score."""
        episode = self._episode
        if episode is None:
            return AtariState(**self._default.model_dump())
        return AtariState(
            **episode.setting.model_dump(),
            episode_id=self._episode_id,
            step_count=len(episode.actions),
            score=episode.score,
        )

    def render(self) -> Screen:
        """The screen as RGB, an array of uint8 such as (210, 160, 3), whatever `obs_type` is.

        Raises:
            Refused: There is no game yet.
        """
        screen: Screen = self._running("render").console.ale.getScreenRGB()
        return screen

    def close(self) -> None:
        """Leave the console to whoever plays next."""
        give_back(self._console)
        self._episode = None

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the episode: its seed, its actions, and a checkpoint; see `snapshots`.

        Raises:
            Refused: There is no episode yet.
        """
        return snapshots.write(self._running("snapshot"), self._episode_id)

    def restore(self, data: bytes) -> None:
        """Go on with a stored episode.

        It takes up to 32 steps of play; of an episode that a server with another key has stored,
        all of its steps.

        Raises:
            Refused: The bytes are none that `snapshot` has written. The running episode goes on.
        """
        stored = snapshots.read(data)
        # One that plays is kept, since it goes on if this comes to nothing.
        find = _console_for if self._episode is not None else self._console_of
        console = find(stored.setting)
        try:
            episode = snapshots.resume(stored, console)
        except BaseException:
            if console is not self._console:
                give_back(console)
            raise
        self._use(console)
        self._episode, self._episode_id = episode, stored.episode_id

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Name the splits: train, test, atari57, all, variations."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[AtariTask]:
        """Give every task of a split."""
        return list(tasks_of(split))

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return len(tasks_of(split))

    def get_task(self, split: str, index: int) -> AtariTask:
        """Give one task, counted from 0.

        Raises:
            IndexError: There is none at this index.
        """
        tasks = tasks_of(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"{split} has tasks 0 to {len(tasks) - 1}, and none at {index}")
        return tasks[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[AtariTask]:
        """Give the tasks from `start` to before `stop`, as a slice does."""
        return list(tasks_of(split)[start:stop])

    # ------------------------------------------------------------------ what is played

    def _chosen(self, chosen: Mapping[str, Any]) -> AtariSetting:
        if not chosen:
            return self._default
        own = self._default.model_dump()
        if chosen.get("game_name", self._default.game_name) != self._default.game_name:
            own |= dict.fromkeys(_OF_ONE_GAME)
        return _setting({**own, **chosen})

    def _of_task(
        self, task: str | Mapping[str, Any] | AtariTask, chosen: Mapping[str, Any]
    ) -> AtariSetting:
        said_twice = sorted(chosen.keys() - _NOT_OF_A_TASK)
        if said_twice:
            raise Refused(f"a task says what {', '.join(said_twice)} shall be; leave it out")
        known = _task(task)
        fields = known.model_dump(include=set(AtariSetting.model_fields) - _NOT_OF_A_TASK)
        return _setting({"obs_type": self._default.obs_type, **fields, **chosen})

    def _console_of(self, setting: AtariSetting) -> Console:
        """This console where it has the game in it, and another where it has not."""
        if setting.game_name != self._console.game_name:
            return _console_for(setting)
        self._console.check(setting.mode, setting.difficulty)
        return self._console

    def _use(self, console: Console) -> None:
        if console is not self._console:
            give_back(self._console)
            self._console = console

    # ------------------------------------------------------------------ the running episode

    def _running(self, method: str) -> Episode:
        if self._episode is None:
            raise Refused(f"{method}() was called before reset(): there is no game yet")
        return self._episode

    def _playable(self, action: AtariAction) -> Episode:
        episode = self._running("step")
        if episode.is_over or episode.is_truncated:
            raise Refused("step() was called after done: the game is over, call reset()")
        for name in ("game_name", "obs_type", "full_action_space"):
            said, played = getattr(action, name), getattr(episode.setting, name)
            if said != played and said != _SHAPE_OF_ACTION[name].default:
                raise Refused(
                    f"the action says {name}={said!r}, but {played!r} is being played; choose it "
                    f"with reset({name}=...) or {VARIABLES[name]}"
                )
        if not 0 <= action.action_id < len(episode.action_set):
            listed = ", ".join(f"{i} ({name})" for i, name in enumerate(episode.meanings))
            raise Refused(
                f"illegal action {action.action_id} in {episode.setting.game_name}; legal actions "
                f"are {listed}"
            )
        return episode

    def _observe(self) -> AtariObservation:
        episode = self._running("observe")
        ale, setting = episode.console.ale, episode.setting
        screen = _SCREENS[setting.obs_type](ale)
        is_over = episode.is_over
        is_truncated = not is_over and episode.is_truncated
        return AtariObservation(
            screen=screen.reshape(-1),
            screen_shape=list(screen.shape),
            legal_actions=list(range(len(episode.action_set))),
            lives=ale.lives(),
            episode_frame_number=ale.getEpisodeFrameNumber(),
            frame_number=ale.getFrameNumber(),
            done=is_over or is_truncated,
            truncated=is_truncated,
            metadata={
                "game_name": setting.game_name,
                "action_meanings": episode.meanings.copy(),
            },
        )


def _given(**choices: Any) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if value is not None}


def _from_environ() -> dict[str, str]:
    found = {name: os.environ.get(variable) for name, variable in VARIABLES.items()}
    return {name: text for name, text in found.items() if text}


def _setting(choices: Mapping[str, Any]) -> AtariSetting:
    try:
        return AtariSetting.model_validate(choices)
    except ValidationError as error:
        raise Refused(_words(error)) from None


def _task(task: str | Mapping[str, Any] | AtariTask) -> AtariTask:
    if isinstance(task, str):
        return task_named(task)
    try:
        return AtariTask.model_validate(task)
    except ValidationError as error:
        raise Refused(f"this is no task: {_words(error)}") from None


def _words(error: ValidationError) -> str:
    """What is wrong with the first field that is, for whoever has chosen it."""
    wrong: Sequence[Any] = error.errors()
    field, given, expected = wrong[0]["loc"][0], wrong[0]["input"], wrong[0]["msg"]
    return f"{field}={given!r}: {expected[:1].lower()}{expected[1:]}"


def _console_for(setting: AtariSetting) -> Console:
    """A console with the setting's game in it, that has its mode and difficulty.

    Raises:
        Refused: There are none such.
    """
    console = take(setting.game_name)
    try:
        console.check(setting.mode, setting.difficulty)
    except Refused:
        give_back(console)
        raise
    return console
