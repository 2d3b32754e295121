"""Classes for TRL's `environment_factory`, made from any environment.

TRL creates an instance for each rollout of a batch and reuses them for later batches. At the start
of each batch it calls `reset` with the columns of the dataset's row. Each other public method is a
tool. At the end, `get_reward` returns the episode's reward (https://huggingface.co/docs/trl/openenv).
"""

from __future__ import annotations

import base64
import copyreg
import io
import json
import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from openenv._internal.json import read_json
from openenv.client import background
from openenv.errors import CapacityError, OpenEnvError
from openenv.integrations.trl.rewards import TrainingRefused
from openenv.integrations.trl.trainers import (
    calling_trainer,
    check_trainer,
    check_worker,
    clock_of,
)
from openenv.integrations.trl.versions import LOWEST_WITH_FACTORY, check_trl
from openenv.integrations.typed_tools import (
    Parameters,
    identifiers,
    parameters_of,
    typed_function,
)
from openenv.reward import Score
from openenv.rollouts.beginnings import Beginnings, digest_of
from openenv.rollouts.engine import ignorable_arguments, reset_arguments
from openenv.rollouts.episode_sessions import (
    EpisodeSession,
    EpisodeSessions,
    NoActiveEpisode,
    Unfinished,
)
from openenv.rollouts.failures import FailureStreak, TaskNotTaken
from openenv.rollouts.interfaces import AgentTool
from openenv.rollouts.jobs import derived_seed
from openenv.rollouts.meter import Meter
from openenv.tasks.task import Task

T = TypeVar("T")

Content = str | list[dict[str, Any]]
"""The content of a message to the model: a text, or a list of parts, which may be pictures."""

TASK_COLUMN = "openenv_task"
"""The column that holds a task as JSON; `task_dataset` writes it."""

NOT_BEGUN = "no episode was begun: call reset first"
COLUMNS_CURE = (
    "Each column of the dataset is an argument of reset, unless columns=[...] says which are; name "
    "there those that are the episode, and leave out those that are for reward functions"
)

# Columns that belong to TRL and are never passed to an environment.
OF_TRL = frozenset({"chat_template_kwargs", "completion_ids", "environment", "prompt"})
# Columns that may belong to TRL or to the environment: passed on as arguments that the environment
# may ignore.
OF_BOTH = frozenset({"completion", "image", "images", "tools"})
# Maximum number of equal rows in succession if nothing tells which group a rollout belongs to.
MOST_ALIKE = 1024

Columns = Sequence[str] | Mapping[str, str]

logger = logging.getLogger(__name__)


class ToolRefused(OpenEnvError, ValueError):
    """The environment refuses the call; the model sees the reason, and the episode continues."""


class _EnvironmentType(type):
    """The metaclass of the classes that `environment_factory` makes.

    Public methods live here so that instances lack them: TRL takes each public method of an
    instance for a tool.
    """

    _made_of: tuple[Any, dict[str, Any]]
    sessions: EpisodeSessions

    def close(cls) -> None:
        """Close every session; called at interpreter exit too."""
        background.run(cls.sessions.aclose())


def _reduced(cls: _EnvironmentType) -> Any:
    """Pickle a class as the arguments of `environment_factory`, which unpickling calls again."""
    made_of = cls.__dict__.get("_made_of")
    return cls.__qualname__ if made_of is None else (_made_elsewhere, made_of)


copyreg.pickle(_EnvironmentType, _reduced)


def _made_elsewhere(environment: Any, options: dict[str, Any]) -> type[RolloutEnvironment]:
    made = environment_factory(environment, **options)
    made._config.is_elsewhere = True
    return made


class RolloutEnvironment(metaclass=_EnvironmentType):
    """The base class of `environment_factory`'s classes: an instance is a rollout's environment.

    The tools are methods of the subclass. Members that TRL must not take for tools are properties,
    or belong to the metaclass. TRL before 1.15 reads all properties, so they must never raise.
    """

    sessions: ClassVar[EpisodeSessions]
    meter: ClassVar[Meter]
    _config: ClassVar[_FactoryConfig]

    def __init__(self) -> None:
        self._session: EpisodeSession | None = None
        self._has_begun = False
        self._config.places.add(self)
        if self._config.is_elsewhere:
            check_worker()

    # ------------------------------------------------------------------ the episode

    @property
    def reward(self) -> float | None:
        """The episode's reward; None before the first episode, and for an unscored episode, which
        TRL leaves out.
        """
        return self._score.value

    @property
    def reward_components(self) -> dict[str, float]:
        """The components of the reward, by name."""
        return dict(self._score.components)

    @property
    def unscored(self) -> str | None:
        """Reason why there is no reward; None if there is one."""
        return self._score.unscored

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self._session is not None and self._session.is_over

    @property
    def steps(self) -> int:
        """Number of steps of the episode."""
        return 0 if self._session is None else self._session.steps

    @property
    def _score(self) -> Score:
        if self._session is None:
            return Score(unscored=NOT_BEGUN)
        return self._session.score(self._config.unfinished)

    # ------------------------------------------------------------------ reset and tools

    def reset(self, **columns: Any) -> Content | None:
        """Begin an episode with the columns of a dataset's row."""
        config = self._config
        arguments, may_ignore = episode_arguments(columns, config.columns)
        config.begin(self, columns, arguments)
        if self._session is None:
            # TRL creates all instances before the first batch, so `places` is complete.
            self.sessions.check_room(len(config.places))
            self._session = background.run(self.sessions.take())
        elif self._has_begun:
            config.streak.ended(self._session.failure)
        self._has_begun = False
        try:
            first = background.run(self._session.reset(may_ignore=may_ignore, **arguments))
        except CapacityError:
            raise  # every batch would fail so, and training would use incomplete groups
        except TaskNotTaken as error:
            raise TaskNotTaken(f"{error}. {COLUMNS_CURE}") from error
        except Exception:
            if self._session.failure is None:
                raise
            config.streak.ended(self._session.failure)
            return None  # the reward is None, so TRL leaves the rollout out
        self._has_begun = True
        seen = self._session.look_at(first)
        pictures = "".join(one["data"] for one in seen.pictures)
        config.beginnings.saw(digest_of(arguments), seen.text + pictures)
        is_behind_words = bool(seen.text) and _says(columns.get("prompt"))
        return _content(f"\n\n{seen.text}" if is_behind_words else seen.text, seen.pictures)

    async def _call(
        self, tool: AgentTool, parameters: Parameters, given: dict[str, Any]
    ) -> Content:
        if self._session is None:
            raise NoActiveEpisode(NOT_BEGUN)
        answer = await self._session.call(tool.name, parameters.arguments(given))
        if answer.is_refused:
            raise ToolRefused(answer.text.removeprefix("Error: "))
        return _content(answer.text, answer.pictures)


class _RewardingEnvironment(RolloutEnvironment):
    """A `RolloutEnvironment` with the `get_reward` that TRL calls."""

    def get_reward(self) -> float | None:
        """Return the episode's reward; None for an unscored episode."""
        if self._session is None:
            raise NoActiveEpisode(NOT_BEGUN)
        return self.reward


class _FactoryConfig:
    """Settings and state that all instances of a class share.

    Attributes:
        is_elsewhere: Whether the class was unpickled, in a process of AsyncGRPO. There is no
            calling trainer there, and an instance may begin again before others of its group have
            begun. So batches cannot be told apart, and only a row's columns identify the episode.
    """

    def __init__(
        self,
        columns: Columns | None,
        unfinished: Unfinished,
        failures_in_a_row: int | None,
        seed: int,
        beginnings: Beginnings | None,
        name: str,
    ) -> None:
        self.columns = columns
        self.unfinished: Unfinished = unfinished
        self.streak = FailureStreak(failures_in_a_row)
        self.beginnings = beginnings or Beginnings(name, is_on=False)
        self.is_elsewhere = False
        self.places: weakref.WeakSet[RolloutEnvironment] = weakref.WeakSet()
        self._gives_seeds = beginnings is not None
        self._seed = seed
        self._checked: weakref.ref[Any] | None = None  # the trainer that passed the checks
        self._lock = threading.Lock()
        self._batch_of_clock = ("", -1, 0)
        self._begun: set[int] = set()  # without a trainer: ids of instances begun in this batch
        self._batch = 0
        self._last_row, self._alike = "", 0

    def begin(
        self, place: RolloutEnvironment, columns: Mapping[str, Any], arguments: dict[str, Any]
    ) -> None:
        """Record the beginning of a rollout; add the seed of the group if the row has none.

        Raises:
            TrainingRefused: The trainer would train on a wrong signal.
        """
        trainer = None if self.is_elsewhere else calling_trainer()
        if trainer is not None:
            if self._checked is None or self._checked() is not trainer:
                check_trainer(trainer)
                self._checked = weakref.ref(trainer)
            clock = clock_of(trainer)
            group = clock.reset_of(trainer, place)
            if self._batch_of_clock != clock.batch:
                self._batch_of_clock = clock.batch
                self.beginnings.forget()
            seed = clock.seed(self._seed, group)
        else:
            seed = self._seed_of_row(place, {"prompt": columns.get("prompt"), **arguments})
        if self._gives_seeds and arguments.get("seed") is None:
            arguments["seed"] = seed

    def _seed_of_row(self, place: RolloutEnvironment, row: Mapping[str, Any]) -> int:
        """Return the seed of a row's rollouts in this batch.

        A new batch begins when an instance begins for the second time.
        """
        digest = digest_of(row)
        with self._lock:
            if self.is_elsewhere:
                self._alike = self._alike + 1 if digest == self._last_row else 1
                self._last_row = digest
            elif id(place) in self._begun:
                self._batch += 1
                self._begun.clear()
                self.beginnings.forget()
            self._begun.add(id(place))
            batch = self._batch
        if self._alike > MOST_ALIKE and row.get("seed") is None:
            raise TrainingRefused(
                f"{self._alike} rollouts in a row are of equal rows, and AsyncGRPO does not tell "
                "which group a rollout is of: all would play one episode. Give each row a `seed`, "
                "as task_dataset does; or pass equal_beginnings=False"
            )
        return derived_seed(self._seed, digest, batch)


def environment_factory(
    environment: Any,
    *,
    columns: Columns | None = None,
    unfinished: Unfinished = "earned",
    gives_reward: bool = True,
    is_async: bool = False,
    retries: int = 2,
    failures_in_a_row: int | None = 32,
    name: str | None = None,
    shows: Sequence[str] | None = None,
    shows_pictures: bool = False,
    seed: int = 0,
    equal_beginnings: bool = True,
) -> type[RolloutEnvironment]:
    """Make a class for TRL's ``environment_factory``.

    Each instance keeps a session of its own from episode to episode. So each process needs
    ``per_device_train_batch_size`` times ``steps_per_generation`` sessions; the latter defaults to
    ``gradient_accumulation_steps``. If the server has too few slots, ``reset`` raises
    `CapacityError` instead of waiting.

    A rollout whose environment has failed has no reward: its advantage is 0, and it does not count
    in its group. Wrap other reward functions in `skip_failures`.

    All rollouts of a group begin alike. If the dataset has no ``seed``, the seed is derived from
    the trainer's step, the batch and the group. So it is the same on each process and after
    resuming, and each evaluation has the same episodes. The first observations are compared within
    each group.

    The class can be pickled if `environment` can: another process connects on its own.

    Args:
        environment: The environment, as `openenv.rollout` takes it: an address, the name of an
            installed environment, an environment class, a client, or an `EnvPool`.
        columns: The dataset's columns that ``reset`` is called with, or a mapping from columns to
            arguments. Default: all that are not None, except ``prompt``, ``environment``,
            ``chat_template_kwargs``, ``completion_ids``, and, if there is an ``openenv_task``,
            ``task_id``.
        unfinished: Reward of an episode that the model has not finished; see
            `openenv.rollouts.episode_sessions.Unfinished`.
        gives_reward: Define ``get_reward``, which TRL uses as one of its rewards. If False, pass
            ``reward_funcs`` that read ``environments[i].reward``.
        is_async: Make the tools ``async def``, so that the calls of one turn overlap if the
            environment allows it.
        retries: Further attempts at a reset after a passing failure.
        failures_in_a_row: End training after this many episodes in a row failed in a reset or a
            step. None: never. A full server, or an argument that ``reset`` does not take, ends
            training at once.
        name: Name of the class, and so of the reward in TRL's logs. Default: the environment's.
        shows: Observation fields that the model sees, in this order. Default: all public fields.
        shows_pictures: Pass the pictures of observations to TRL, for a vision model: ``reset`` and
            tools then return a list of parts. If False, a picture raises `NotSupported`.
        seed: The seed from which the seeds of groups are derived.
        equal_beginnings: Give seeds if the dataset has none, and raise `UnequalBeginnings` if two
            rollouts of a group begin differently. If False, beginnings are left to chance.

    Returns:
        The class. It has a `meter` that covers all its instances, and a ``close()``.

    Raises:
        NotSupported: The installed version of TRL is too old.
        OpenEnvError: The environment cannot be reached, or does not say how to act in it.
        TypeError: `environment` is not an environment.
        ValueError: `shows` names a field that observations do not have.
    """
    check_trl(LOWEST_WITH_FACTORY)
    options = {
        "columns": columns,
        "unfinished": unfinished,
        "gives_reward": gives_reward,
        "is_async": is_async,
        "retries": retries,
        "failures_in_a_row": failures_in_a_row,
        "name": name,
        "shows": shows,
        "shows_pictures": shows_pictures,
        "seed": seed,
        "equal_beginnings": equal_beginnings,
    }
    sessions = background.run(
        EpisodeSessions.of(environment, retries=retries, shows=shows, shows_pictures=shows_pictures)
    )
    beginnings = Beginnings(sessions.name) if equal_beginnings else None
    methods: dict[str, Any] = {
        "sessions": sessions,
        "meter": sessions.meter,
        "_made_of": (environment, options),
        "_config": _FactoryConfig(
            columns, unfinished, failures_in_a_row, seed, beginnings, sessions.name
        ),
        "__doc__": f"A rollout in {sessions.name}.",
    }
    taken = {"close", *dir(_RewardingEnvironment)}
    words = identifiers((tool.name for tool in sessions.interface.tools), taken)
    for tool in sessions.interface.tools:
        methods[words[tool.name]] = _tool_method(words[tool.name], tool, is_async=is_async)
    base = _RewardingEnvironment if gives_reward else RolloutEnvironment
    made: Any = _EnvironmentType(name or _class_name(sessions.name), (base,), methods)
    return made  # type: ignore[no-any-return]


def episode_arguments(
    row: Mapping[str, Any], columns: Columns | None = None
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the arguments with which an environment is reset for a row of a dataset.

    Args:
        columns: The columns to use; see `environment_factory`.

    Returns:
        The arguments, and those of them that the environment may ignore.

    Raises:
        KeyError: The row lacks one of the columns.
    """
    written = row.get(TASK_COLUMN)
    may_ignore: frozenset[str] = frozenset()
    if columns is None:
        # A row with a task also has the task's id, which is for people only.
        others = OF_TRL | {TASK_COLUMN} | ({"task_id"} if written is not None else set())
        found = {
            name: value
            for name, value in row.items()
            if name not in others and value is not None and _can_be_sent(name, value)
        }
        may_ignore = OF_BOTH & found.keys()
    else:
        named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
        missing = sorted(set(named) - row.keys())
        if missing:
            raise KeyError(f"columns: the dataset has no {', '.join(map(repr, missing))}")
        found = {argument: row[column] for column, argument in named.items()}
    if written is None:
        return found, may_ignore
    task = Task.model_validate(read_json(written) if isinstance(written, str) else written)
    return {**found, **reset_arguments(task, True)}, may_ignore | ignorable_arguments(task)


_left_out: set[str] = set()


def _can_be_sent(name: str, value: Any) -> bool:
    """Return whether a column can be sent to a reset; pictures for the model cannot."""
    if name not in OF_BOTH:
        return True  # if it cannot be sent, the reset raises
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        if name not in _left_out:
            _left_out.add(name)
            logger.warning(
                "the column %r holds %s, which is for the model and cannot be sent to an "
                "environment; its reset is called without it",
                name,
                type(value).__name__,
            )
        return False
    return True


# ------------------------------------------------------------------ methods of the class


def _tool_method(word: str, tool: AgentTool, *, is_async: bool) -> Any:
    parameters = parameters_of(tool)

    def called(self: RolloutEnvironment, **given: Any) -> Content:
        return background.run(self._call(tool, parameters, given))

    async def called_async(self: RolloutEnvironment, **given: Any) -> Content:
        return await background.submit(self._call(tool, parameters, given)).awaited()

    function = called_async if is_async else called
    return typed_function(word, tool.description, parameters, function, is_method=True)


def _content(text: str, pictures: Sequence[Mapping[str, Any]]) -> Content:
    """Return the text, or if there are pictures, the list of parts that TRL takes."""
    if not pictures:
        return text
    from PIL import Image

    parts: list[dict[str, Any]] = [
        {"type": "image", "image": Image.open(io.BytesIO(base64.b64decode(one["data"])))}
        for one in pictures
    ]
    return [*parts, {"type": "text", "text": text}]


def _says(prompt: Any) -> bool:
    """Return whether the prompt's last message, which the observation follows, has content."""
    if isinstance(prompt, str):
        return bool(prompt)
    return bool(prompt and prompt[-1].get("content"))


def _class_name(name: str) -> str:
    word = "".join(part.capitalize() for part in identifiers([name])[name].split("_") if part)
    return word if word.isidentifier() else f"Environment{word}"
