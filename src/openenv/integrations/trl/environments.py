"""The class that TRL's `environment_factory` wants, made of any environment.

TRL makes an instance for each rollout of a batch and keeps it; each batch begins by `reset` with
the columns of the dataset's row; each other public method is a tool; and `get_reward` says at the
end what the episode was worth (https://huggingface.co/docs/trl/openenv).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from openenv._json import read_json
from openenv.client import background
from openenv.errors import CapacityError, OpenEnvError
from openenv.integrations.typed_tools import (
    Parameters,
    identifiers,
    parameters_of,
    typed_function,
)
from openenv.reward import Score
from openenv.rollouts.episodes import needless, reset_arguments
from openenv.rollouts.failures import EnvironmentsFailing, FailureStreak, is_passing
from openenv.rollouts.interfaces import ActionTool
from openenv.rollouts.meter import Meter
from openenv.rollouts.seats import NoEpisode, Seat, Seats, Unfinished
from openenv.tasks.task import Task

__all__ = [
    "TASK_COLUMN",
    "EnvironmentsFailing",
    "RolloutEnvironment",
    "ToolRefused",
    "environment_factory",
    "episode_arguments",
]

T = TypeVar("T")

TASK_COLUMN = "openenv_task"
"""The column that holds a task as JSON; `task_dataset` writes it."""

# Columns that are TRL's own, and say nothing to an environment.
OF_TRL = frozenset(
    {
        "chat_template_kwargs",
        "completion",
        "completion_ids",
        "environment",
        "image",
        "images",
        "prompt",
        "task_id",
        "tools",
    }
)
Columns = Sequence[str] | Mapping[str, str]


class ToolRefused(OpenEnvError, ValueError):
    """The environment does not take this call; the model is told why, and the episode goes on."""


class RolloutEnvironment:
    """What `environment_factory` makes subclasses of: one rollout's place in an environment.

    The tools are methods of the subclass. What TRL shall not take for a tool is a property or a
    class method.
    """

    seats: ClassVar[Seats]
    meter: ClassVar[Meter]
    _terms: ClassVar[_Terms]

    def __init__(self) -> None:
        self._seat: Seat | None = None
        self._has_begun = False

    # ------------------------------------------------------------------ of the episode

    @property
    def reward(self) -> float | None:
        """What the episode is worth; None where nobody can say, so that TRL leaves it out."""
        return self._score.value

    @property
    def reward_components(self) -> dict[str, float]:
        """The parts of the reward, by name."""
        return dict(self._score.components)

    @property
    def unscored(self) -> str | None:
        """Why there is no reward."""
        return self._score.unscored

    @property
    def done(self) -> bool:
        """The episode came to its end."""
        return self._seat is not None and self._seat.is_over

    @property
    def steps(self) -> int:
        """That the episode had."""
        return 0 if self._seat is None else self._seat.steps

    @property
    def _score(self) -> Score:
        if self._seat is None:
            raise NoEpisode("no episode was begun: call reset first")
        return self._seat.score(self._terms.unfinished)

    # ------------------------------------------------------------------ of all of them

    @classmethod
    def close(cls) -> None:
        """Give back every session; a program that ends does so too."""
        background.run(cls.seats.aclose())

    # ------------------------------------------------------------------ what methods do

    def _reset(self, columns: Mapping[str, Any]) -> str | None:
        terms = self._terms
        arguments, may_ignore = episode_arguments(columns, terms.columns)
        if self._seat is None:
            self._seat = background.run(self.seats.take())
        elif self._has_begun:
            terms.streak.ended(self._seat.failure)
        self._has_begun = False
        try:
            first = background.run(self._seat.reset(may_ignore=may_ignore, **arguments))
        except Exception as error:
            if isinstance(error, CapacityError) or not is_passing(error):
                raise
            terms.streak.ended(self._seat.failure)
            return None  # its reward is None: the rollout is left out
        self._has_begun = True
        shown = self._seat.seen(first)
        return f"\n\n{shown}" if shown and _says(columns.get("prompt")) else shown

    async def _call(self, tool: ActionTool, parameters: Parameters, given: dict[str, Any]) -> str:
        if self._seat is None:
            raise NoEpisode("no episode was begun: call reset first")
        answer = await self._seat.call(tool.name, parameters.arguments(given))
        if answer.is_refused:
            raise ToolRefused(answer.text.removeprefix("Error: "))
        return answer.text


class _Terms:
    """What holds of every instance of a class."""

    def __init__(
        self, columns: Columns | None, unfinished: Unfinished, failures_in_a_row: int | None
    ) -> None:
        self.columns = columns
        self.unfinished: Unfinished = unfinished
        self.streak = FailureStreak(failures_in_a_row)


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
) -> type[RolloutEnvironment]:
    """Make the class that TRL's ``environment_factory`` wants.

    Each instance has a session of its own, which it keeps from episode to episode: there must be
    room for as many as TRL plays rollouts at once, ``per_device_train_batch_size`` times
    ``steps_per_generation`` (by default ``gradient_accumulation_steps``) on each process; what is
    missing is an error, and nothing waits for ever.

    A rollout whose environment has failed has no reward, and TRL leaves it out of the loss.

    Args:
        environment: As `openenv.rollout` takes it: an address, the name of an environment that is
            installed, an environment class, a client, an `EnvPool`.
        columns: The dataset's columns that ``reset`` is called with; a mapping names the argument
            of each. Default: all that are not TRL's own and not None.
        unfinished: What an episode is worth that the model has not brought to its end; see
            `openenv.rollouts.seats.Unfinished`.
        gives_reward: Have a ``get_reward``, which TRL then takes as one of its rewards. Without,
            pass ``reward_funcs`` that read ``environments[i].reward``.
        is_async: Make the tools ``async def``: calls that a model makes in one turn overlap where
            the environment can.
        retries: How often a reset is tried again whose failure may pass.
        failures_in_a_row: After how many failed episodes in a row training ends; None never.
        name: Of the class, and so of the reward in TRL's logs. Default: after the environment.
        shows: The fields of observations that the model is shown, in this order. Default: all that
            are public.

    Returns:
        The class. It has a `meter`, of all its instances, and a class method `close`.

    Raises:
        OpenEnvError: The environment cannot be reached, or does not tell how one acts in it.
        TypeError: It is no environment.
        ValueError: Observations have no field of a name in `shows`.
    """
    seats = background.run(Seats.of(environment, retries=retries, shows=shows))
    methods: dict[str, Any] = {
        "seats": seats,
        "meter": seats.meter,
        "_terms": _Terms(columns, unfinished, failures_in_a_row),
        "__doc__": f"A rollout in {seats.name}.",
        "reset": _reset_method(),
    }
    taken = {"reset", "get_reward", *dir(RolloutEnvironment)}
    words = identifiers((tool.name for tool in seats.interface.tools), taken)
    for tool in seats.interface.tools:
        methods[words[tool.name]] = _tool_method(words[tool.name], tool, is_async=is_async)
    if gives_reward:
        methods["get_reward"] = _reward_method()
    return type(name or _class_name(seats.name), (RolloutEnvironment,), methods)


def episode_arguments(
    row: Mapping[str, Any], columns: Columns | None = None
) -> tuple[dict[str, Any], frozenset[str]]:
    """What an environment is reset with for a row of a dataset.

    Args:
        row: Its columns.
        columns: Which of them; see `environment_factory`.

    Returns:
        The arguments; and which of them the environment may ignore.

    Raises:
        KeyError: The row has not all of the columns.
        ValueError: Its task is none.
    """
    rest = {name: value for name, value in row.items() if name != TASK_COLUMN}
    if columns is None:
        found = {
            name: value for name, value in rest.items() if name not in OF_TRL and value is not None
        }
    else:
        named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
        missing = sorted(set(named) - row.keys())
        if missing:
            raise KeyError(f"columns: the dataset has no {', '.join(map(repr, missing))}")
        found = {argument: row[column] for column, argument in named.items()}
    written = row.get(TASK_COLUMN)
    if written is None:
        return found, frozenset()
    task = Task.model_validate(read_json(written) if isinstance(written, str) else written)
    return {**found, **reset_arguments(task, True)}, frozenset(needless(task))


# ------------------------------------------------------------------ its methods


def _reset_method() -> Callable[..., str | None]:
    def reset(self: RolloutEnvironment, **columns: Any) -> str | None:
        """Begin an episode by the columns of a dataset's row."""
        return self._reset(columns)

    return reset


def _reward_method() -> Callable[..., float | None]:
    def get_reward(self: RolloutEnvironment) -> float | None:
        """What the episode is worth; None where nobody can say."""
        return self.reward

    return get_reward


def _tool_method(word: str, tool: ActionTool, *, is_async: bool) -> Any:
    parameters = parameters_of(tool)

    def called(self: RolloutEnvironment, **given: Any) -> str:
        return background.run(self._call(tool, parameters, given))

    async def called_async(self: RolloutEnvironment, **given: Any) -> str:
        return await _elsewhere(self._call(tool, parameters, given))

    function = called_async if is_async else called
    return typed_function(word, tool.description, parameters, function, is_method=True)


async def _elsewhere(work: Coroutine[Any, Any, T]) -> T:
    """Await what runs on the loop that seats live on."""
    return await asyncio.wrap_future(background.submit(work))


def _says(prompt: Any) -> bool:
    """Whether a prompt's last message, which TRL puts the observation behind, has words."""
    if isinstance(prompt, str):
        return bool(prompt)
    return bool(prompt and prompt[-1].get("content"))


def _class_name(name: str) -> str:
    word = "".join(part.capitalize() for part in identifiers([name])[name].split("_") if part)
    return word if word.isidentifier() else f"Environment{word}"
