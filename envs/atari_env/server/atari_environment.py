"""The Atari environment, on the Arcade Learning Environment (ALE)."""

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
from .games import Console, points_range, return_console, take_console
from .tasks import SPLITS, find_task, tasks_of

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
"""The environment variables that set the defaults of `AtariSetting`'s fields."""

_SCREENS: dict[ObsType, Callable[[ALEInterface], Screen]] = {
    "rgb": ALEInterface.getScreenRGB,
    "grayscale": ALEInterface.getScreenGrayscale,
    "ram": ALEInterface.getRAM,
}

# Fields whose values belong to one game.
_GAME_SPECIFIC_FIELDS = ("mode", "difficulty")

# Fields that a task leaves to the caller.
_CALLER_FIELDS = {"obs_type"}

_ACTION_FIELDS = AtariAction.model_fields


class AtariEnvironment(Environment[AtariAction, AtariObservation, AtariState]):
    """The games of the Atari 2600 (Bellemare et al. 2013, arXiv:1207.4708).

    The console holds an action for `frameskip` frames of a sixtieth of a second. It is
    deterministic, so a seed has an effect only if `repeat_action_probability` is above 0.

    Args:
        game_name: The name of a ROM, such as ``space_invaders``: one of `games.GAMES`.
        obs_type: ``rgb``, ``grayscale`` or ``ram``.
        full_action_space: Allow every action of the console, not only those that the game uses.
        mode: One of the game's modes.
        difficulty: One of the game's positions of the difficulty switches.
        repeat_action_probability: The probability of sticky actions, 0 to 1.
        frameskip: Frames per step, 1 to 1000.
        max_frames: Frames after which an episode is truncated; 0 for no limit.

    None takes the value of the variable in `VARIABLES`, or else the default of `AtariSetting`.

    Raises:
        ValueError: The game or an option is unknown.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    # The range depends on the game; `reset` declares it.
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
        chosen = _drop_none(
            game_name=game_name,
            obs_type=obs_type,
            full_action_space=full_action_space,
            mode=mode,
            difficulty=difficulty,
            repeat_action_probability=repeat_action_probability,
            frameskip=frameskip,
            max_frames=max_frames,
        )
        self._default = _make_setting({**_read_environ(), **chosen})
        self._console = _take_console(self._default)
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
            seed: Determines which actions stick; any integer. It has the same effect as in
                Gymnasium's `ALE/...-v5`. None draws a seed.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task of `list_tasks`, or its id. It sets all of the following options except
                `obs_type`.
            game_name: The game of this episode; None uses the environment's own. With another
                game, the environment's own mode and difficulty do not apply.
            obs_type: The class's option for this episode; None uses the environment's own.
            full_action_space: Like `obs_type`.
            mode: Like `obs_type`.
            difficulty: Like `obs_type`.
            repeat_action_probability: Like `obs_type`.
            frameskip: Like `obs_type`.
            max_frames: Like `obs_type`.

        Returns:
            The first observation; its reward is 0.

        Raises:
            Refused: The game, the task or an option is unknown, or an option and a task that sets
                it are both given. The running episode continues.
        """
        chosen = _drop_none(
            game_name=game_name,
            obs_type=obs_type,
            full_action_space=full_action_space,
            mode=mode,
            difficulty=difficulty,
            repeat_action_probability=repeat_action_probability,
            frameskip=frameskip,
            max_frames=max_frames,
        )
        setting = (
            self._combine_choices(chosen) if task is None else self._setting_for_task(task, chosen)
        )
        self._switch_console(self._find_console(setting))
        self.REWARD = RewardSpec(  # type: ignore[misc]  # the range of this game's points
            "per_step", points_range(setting.game_name), ("points",)
        )
        self._episode = Episode(self._console, setting, generator_seed(seed))
        self._episode_id = episode_id or str(uuid.uuid4())
        return scored(self._observe(), 0.0)

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: AtariAction
    ) -> AtariObservation:
        """Hold an action for `frameskip` frames, or to the end of the game.

        Raises:
            Refused: No episode is running, the game does not have the action, or the action names
                another game. Nothing changes.
        """
        points = self._check_action(action).play(action.action_id)
        return scored(self._observe(), Score(points, {"points": points}))

    @property
    def state(self) -> AtariState:
        """The running game with its options, the number of steps, and the score."""
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
        """Return the screen as RGB, an array of uint8 such as (210, 160, 3), for any `obs_type`.

        Raises:
            Refused: There is no game yet.
        """
        screen: Screen = self._require_episode("render").console.ale.getScreenRGB()
        return screen

    def close(self) -> None:
        """Return the console for reuse by other episodes."""
        return_console(self._console)
        self._episode = None

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the episode: its seed, its actions, and a checkpoint; see `snapshots`.

        Raises:
            Refused: There is no episode yet.
        """
        return snapshots.write(self._require_episode("snapshot"), self._episode_id)

    def restore(self, data: bytes) -> None:
        """Restore a stored episode.

        Restoring replays up to 32 steps. It replays all steps of an episode that a server with
        another key has stored.

        Raises:
            Refused: `snapshot` did not write these bytes. The running episode continues.
        """
        stored = snapshots.read(data)
        # The running episode keeps its console, because it continues if the restore fails.
        find = _take_console if self._episode is not None else self._find_console
        console = find(stored.setting)
        try:
            episode = snapshots.resume(stored, console)
        except BaseException:
            if console is not self._console:
                return_console(console)
            raise
        self._switch_console(console)
        self._episode, self._episode_id = episode, stored.episode_id

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the splits: train, test, atari57, all, variations."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[AtariTask]:
        """Return every task of a split."""
        return list(tasks_of(split))

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return len(tasks_of(split))

    def get_task(self, split: str, index: int) -> AtariTask:
        """Return one task.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        tasks = tasks_of(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"{split} has tasks 0 to {len(tasks) - 1}, and none at {index}")
        return tasks[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[AtariTask]:
        """Return the tasks of the slice ``[start:stop]``."""
        return list(tasks_of(split)[start:stop])

    # ------------------------------------------------------------------ settings

    def _combine_choices(self, chosen: Mapping[str, Any]) -> AtariSetting:
        if not chosen:
            return self._default
        own = self._default.model_dump()
        if chosen.get("game_name", self._default.game_name) != self._default.game_name:
            own |= dict.fromkeys(_GAME_SPECIFIC_FIELDS)
        return _make_setting({**own, **chosen})

    def _setting_for_task(
        self, task: str | Mapping[str, Any] | AtariTask, chosen: Mapping[str, Any]
    ) -> AtariSetting:
        conflicts = sorted(chosen.keys() - _CALLER_FIELDS)
        if conflicts:
            raise Refused(
                f"the task sets {', '.join(conflicts)}; leave it out or leave out the task"
            )
        known = _parse_task(task)
        fields = known.model_dump(include=set(AtariSetting.model_fields) - _CALLER_FIELDS)
        return _make_setting({"obs_type": self._default.obs_type, **fields, **chosen})

    def _find_console(self, setting: AtariSetting) -> Console:
        """Return this console if the game is loaded in it, or else another one."""
        if setting.game_name != self._console.game_name:
            return _take_console(setting)
        self._console.check(setting.mode, setting.difficulty)
        return self._console

    def _switch_console(self, console: Console) -> None:
        if console is not self._console:
            return_console(self._console)
            self._console = console

    # ------------------------------------------------------------------ the running episode

    def _require_episode(self, method: str) -> Episode:
        if self._episode is None:
            raise Refused(f"{method}() was called before reset(): there is no game yet")
        return self._episode

    def _check_action(self, action: AtariAction) -> Episode:
        episode = self._require_episode("step")
        if episode.is_over or episode.is_truncated:
            raise Refused("step() was called after done: the game is over, call reset()")
        for name in ("game_name", "obs_type", "full_action_space"):
            said, played = getattr(action, name), getattr(episode.setting, name)
            if said != played and said != _ACTION_FIELDS[name].default:
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
        episode = self._require_episode("observe")
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


def _drop_none(**choices: Any) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if value is not None}


def _read_environ() -> dict[str, str]:
    found = {name: os.environ.get(variable) for name, variable in VARIABLES.items()}
    return {name: text for name, text in found.items() if text}


def _make_setting(choices: Mapping[str, Any]) -> AtariSetting:
    try:
        return AtariSetting.model_validate(choices)
    except ValidationError as error:
        raise Refused(_describe_error(error)) from None


def _parse_task(task: str | Mapping[str, Any] | AtariTask) -> AtariTask:
    if isinstance(task, str):
        return find_task(task)
    try:
        return AtariTask.model_validate(task)
    except ValidationError as error:
        raise Refused(f"this is no task: {_describe_error(error)}") from None


def _describe_error(error: ValidationError) -> str:
    """Describe the first wrong field of a validation error."""
    wrong: Sequence[Any] = error.errors()
    field, given, expected = wrong[0]["loc"][0], wrong[0]["input"], wrong[0]["msg"]
    return f"{field}={given!r}: {expected[:1].lower()}{expected[1:]}"


def _take_console(setting: AtariSetting) -> Console:
    """Take a console with the setting's game, and check its mode and difficulty.

    Raises:
        Refused: The game is unknown, or does not have the mode or difficulty.
    """
    console = take_console(setting.game_name)
    try:
        console.check(setting.mode, setting.difficulty)
    except Refused:
        return_console(console)
        raise
    return console
