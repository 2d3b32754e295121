"""Classes for TRL's `environment_factory`, made from any environment.

TRL makes an instance for each rollout of a batch and keeps it; each batch begins by `reset` with
the columns of the dataset's row; each other public method is a tool; and `get_reward` says at the
end what the episode was worth (https://huggingface.co/docs/trl/openenv).
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
"""What a model is told: a text, or parts, which may be pictures."""

TASK_COLUMN = "openenv_task"
"""The column that holds a task as JSON; `task_dataset` writes it."""

NOT_BEGUN = "no episode was begun: call reset first"
COLUMNS_CURE = (
    "Each column of the dataset is an argument of reset, unless columns=[...] says which are; name "
    "there those that are the episode, and leave out those that are for reward functions"
)

# Columns that are TRL's own, and say nothing to an environment.
OF_TRL = frozenset({"chat_template_kwargs", "completion_ids", "environment", "prompt"})
# Columns that may be TRL's or the environment's: passed on, and ignored by one that takes none.
OF_BOTH = frozenset({"completion", "image", "images", "tools"})
# How often in a row the same row may come, where nothing tells which group a rollout is of.
MOST_ALIKE = 1024

Columns = Sequence[str] | Mapping[str, str]

logger = logging.getLogger(__name__)


class ToolRefused(OpenEnvError, ValueError):
    """The environment refuses the call; the model is told why, and the episode goes on."""


class _EnvironmentType(type):
    """The class of the classes that `environment_factory` makes.

    What it defines, instances do not have: TRL takes each public method of an instance for a tool.
    """

    _made_of: tuple[Any, dict[str, Any]]
    sessions: EpisodeSessions

    def close(cls) -> None:
        """Close every session; also done at the end of the program."""
        background.run(cls.sessions.aclose())


def _reduced(cls: _EnvironmentType) -> Any:
    """Pickle a class by the arguments of `environment_factory`: another process calls it anew."""
    made_of = cls.__dict__.get("_made_of")
    return cls.__qualname__ if made_of is None else (_made_elsewhere, made_of)


copyreg.pickle(_EnvironmentType, _reduced)


def _made_elsewhere(environment: Any, options: dict[str, Any]) -> type[RolloutEnvironment]:
    made = environment_factory(environment, **options)
    made._config.is_elsewhere = True
    return made


class RolloutEnvironment(metaclass=_EnvironmentType):
    """The base class of `environment_factory`'s classes: an instance is a rollout's environment.

    The tools are methods of the subclass. What TRL shall not take for a tool is a property, which
    can be read at any time (TRL before 1.15 reads them all), or belongs to the metaclass.
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

    # ------------------------------------------------------------------ of the episode

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
        """Reason why there is no reward."""
        return self._score.unscored

    @property
    def done(self) -> bool:
        """True if the episode came to an end."""
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

    # ------------------------------------------------------------------ what methods do

    def reset(self, **columns: Any) -> Content | None:
        """Begin an episode by the columns of a dataset's row."""
        config = self._config
        arguments, may_ignore = episode_arguments(columns, config.columns)
        config.begin(self, columns, arguments)
        if self._session is None:
            # TRL makes all of them before the first batch.
            self.sessions.check_room(len(config.places))
            self._session = background.run(self.sessions.take())
        elif self._has_begun:
            config.streak.ended(self._session.failure)
        self._has_begun = False
        try:
            first = background.run(self._session.reset(may_ignore=may_ignore, **arguments))
        except CapacityError:
            raise  # so it is with each batch: training would go on with the rest of each group
        except TaskNotTaken as error:
            raise TaskNotTaken(f"{error}. {COLUMNS_CURE}") from error
        except Exception:
            if self._session.failure is None:
                raise
            config.streak.ended(self._session.failure)
            return None  # its reward is None: the rollout is left out
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
    """One whose reward TRL asks for."""

    def get_reward(self) -> float | None:
        """Return the episode's reward; None for an unscored episode."""
        if self._session is None:
            raise NoActiveEpisode(NOT_BEGUN)
        return self.reward


class _FactoryConfig:
    """Settings and state that all instances of a class share.

    Attributes:
        is_elsewhere: The class was unpickled, in a process of AsyncGRPO. No trainer calls there,
            and instances begin again while others of their group have not begun: a batch has no
            end, and a row's columns alone tell which episode it is.
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
        self._checked: weakref.ref[Any] | None = None  # the trainer that was looked at
        self._lock = threading.Lock()
        self._batch_of_clock = ("", -1, 0)
        self._begun: set[int] = set()  # without a trainer: who has begun in this batch
        self._batch = 0
        self._last_row, self._alike = "", 0

    def begin(
        self, place: RolloutEnvironment, columns: Mapping[str, Any], arguments: dict[str, Any]
    ) -> None:
        """Note the beginning of a rollout; add the seed of the group if the row has none.

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
        """Return the seed of the rollouts of a row in this batch.

        A batch ends when an instance begins that has already begun in it.
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

    Each instance has a session of its own, which it keeps from episode to episode: there must be
    room for as many as TRL plays rollouts at once, ``per_device_train_batch_size`` times
    ``steps_per_generation`` (by default ``gradient_accumulation_steps``) on each process; what is
    missing is an error, and nothing waits for ever.

    A rollout whose environment has failed has no reward: its advantage is 0, and it does not count
    in its group. Wrap further reward functions by `skip_failures`.

    All rollouts of a group begin alike. Where the dataset has no ``seed``, one follows from the
    trainer's step, the batch and the group, so that it is the same on each process and after
    resuming, and evaluations have the same episodes each time. What the environment shows first is
    compared within each group.

    The class can be pickled if `environment` can: another process connects by itself.

    Args:
        environment: As `openenv.rollout` takes it: an address, the name of an environment that is
            installed, an environment class, a client, an `EnvPool`.
        columns: The dataset's columns that ``reset`` is called with; a mapping names the argument
            of each. Default: all that are not None, but for ``prompt``, ``environment``,
            ``chat_template_kwargs``, ``completion_ids``, and ``task_id`` where ``openenv_task``
            stands beside it.
        unfinished: What an episode is worth that the model has not brought to its end; see
            `openenv.rollouts.episode_sessions.Unfinished`.
        gives_reward: Have a ``get_reward``, which TRL then takes as one of its rewards. Without,
            pass ``reward_funcs`` that read ``environments[i].reward``.
        is_async: Make the tools ``async def``: calls that a model makes in one turn overlap where
            the environment can.
        retries: Further attempts at a reset whose failure may pass.
        failures_in_a_row: After how many failed episodes in a row training ends, whether a reset
            or a step failed; None never. A server without room, and an argument that ``reset``
            does not take, end it at once.
        name: Of the class, and so of the reward in TRL's logs. Default: after the environment.
        shows: The fields of observations that the model is shown, in this order. Default: all that
            are public.
        shows_pictures: Give TRL the pictures of observations, for a model that sees: then ``reset``
            and tools return parts where there are any. Without, a picture raises `NotSupported`.
        seed: The seed from which the seeds of groups are derived.
        equal_beginnings: Give seeds where the dataset has none, and raise `UnequalBeginnings` if
            two rollouts of a group begin differently. False leaves beginnings to chance.

    Returns:
        The class. It has a `meter`, of all its instances, and can be closed by ``close()``.

    Raises:
        NotSupported: The version of TRL that is installed is too old for this.
        OpenEnvError: The environment cannot be reached, or does not tell how one acts in it.
        TypeError: `environment` is no environment.
        ValueError: Observations have no field of a name in `shows`.
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
        The arguments; and which of them the environment may ignore.

    Raises:
        KeyError: The row has not all of the columns.
    """
    written = row.get(TASK_COLUMN)
    may_ignore: frozenset[str] = frozenset()
    if columns is None:
        # A row that has a task has its id beside it, for people.
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
        return True  # what cannot be sent is an error there
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


# ------------------------------------------------------------------ its methods


def _tool_method(word: str, tool: AgentTool, *, is_async: bool) -> Any:
    parameters = parameters_of(tool)

    def called(self: RolloutEnvironment, **given: Any) -> Content:
        return background.run(self._call(tool, parameters, given))

    async def called_async(self: RolloutEnvironment, **given: Any) -> Content:
        return await background.submit(self._call(tool, parameters, given)).awaited()

    function = called_async if is_async else called
    return typed_function(word, tool.description, parameters, function, is_method=True)


def _content(text: str, pictures: Sequence[Mapping[str, Any]]) -> Content:
    """Return a text; with pictures, the parts that TRL takes."""
    if not pictures:
        return text
    from PIL import Image

    parts: list[dict[str, Any]] = [
        {"type": "image", "image": Image.open(io.BytesIO(base64.b64decode(one["data"])))}
        for one in pictures
    ]
    return [*parts, {"type": "text", "text": text}]


def _says(prompt: Any) -> bool:
    """Return whether the prompt's last message, which the observation follows, has words."""
    if isinstance(prompt, str):
        return bool(prompt)
    return bool(prompt and prompt[-1].get("content"))


def _class_name(name: str) -> str:
    word = "".join(part.capitalize() for part in identifiers([name])[name].split("_") if part)
    return word if word.isidentifier() else f"Environment{word}"
