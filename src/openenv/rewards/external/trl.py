"""Reward functions as trainers of TRL take them, and scorers as such functions.

TRL (https://huggingface.co/docs/trl, `GRPOTrainer`) calls a function with a batch, ``f(prompts=...,
completions=..., **columns)``, and takes a list with a number for each, or None where the function
has nothing to say of one. Prompts and completions are text, or messages where the dataset is
conversational; the columns are those of the dataset, as lists. TRL itself is not needed here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer
from openenv.rewards.external.conversation import (
    Message,
    as_messages,
    as_text,
    from_messages,
    row_task,
    split,
    task_of,
)
from openenv.rewards.external.limits import CONCURRENCY, Bounded, bounded
from openenv.rewards.external.scorers import (
    identity_with,
    is_coroutine_function,
    name_of,
    on_thread,
    result_of,
    weighted,
)

__all__ = ["RewardFunctions", "from_trl", "to_trl"]

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., Any]

# What TRL passes beside the columns of the dataset, and what it is where there is no trainer.
OF_TRAINER: dict[str, Any] = {"trainer_state": None, "log_extra": None, "log_metric": None}


class RewardFunctions:
    """Reward functions in the manner of TRL, as one scorer; see `from_trl`."""

    def __init__(
        self,
        functions: Sequence[RewardFunction],
        weights: Sequence[float] | None,
        is_conversational: bool,
        columns: Callable[[Trajectory[Any, Any]], Mapping[str, Any]],
        messages: Callable[[Trajectory[Any, Any]], list[Message]],
    ) -> None:
        names = [_name(function) for function in functions]
        if not functions or len(set(names)) < len(names):
            raise ValueError(f"expected one function or more, each of another name, got {names}")
        weights = [1.0] * len(functions) if weights is None else list(weights)
        if len(weights) != len(functions):
            raise ValueError(f"{len(weights)} weights for {len(functions)} reward functions")
        self.functions = dict(zip(names, functions, strict=True))
        self.weights = dict(zip(names, weights, strict=True))
        self.name = "+".join(names)
        self._is_conversational = is_conversational
        self._columns = columns
        self._messages = messages
        self.identity = identity_with(
            f"trl:{is_conversational}:{weights}", *functions, columns, messages
        )

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score one episode.

        Raises:
            Unscored: A function gave what is no list of one number.
        """
        (score,) = await self.score_many([trajectory])
        return score

    async def score_many(self, trajectories: Sequence[Trajectory[Any, Any]]) -> list[Score]:
        """Score several episodes, each function in one call.

        Raises:
            Unscored: A function gave what is no list of numbers, or wants a column that there is
                not.
        """
        rows = [self._row(one) for one in trajectories]
        batch = {name: [row.get(name) for row in rows] for name in _names(rows)}
        given = {
            name: await _called(name, function, batch) for name, function in self.functions.items()
        }
        return [
            _added({name: found[at] for name, found in given.items()}, self.weights)
            for at in range(len(rows))
        ]

    def _row(self, trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
        prompt, completion = split(self._messages(trajectory))
        columns = dict(self._columns(trajectory))
        if self._is_conversational:
            return {**columns, "prompts": prompt, "completions": completion}
        asked = columns.get("prompt")
        shown = "\n\n".join(filter(None, (str(one.get("content") or "") for one in prompt)))
        text = {"prompts": asked if isinstance(asked, str) else shown}
        return {**columns, **text, "completions": as_text(completion)}


def from_trl(
    *functions: RewardFunction,
    weights: Sequence[float] | None = None,
    conversational: bool = False,
    columns: Callable[[Trajectory[Any, Any]], Mapping[str, Any]] = task_of,
    messages: Callable[[Trajectory[Any, Any]], list[Message]] = as_messages,
) -> RewardFunctions:
    """Make a scorer of reward functions in the manner of TRL.

        def accuracy(completions, answer, **kwargs):
            return [float(said == right) for said, right in zip(completions, answer)]

        scorer = from_trl(accuracy)

    The functions may be ``async def``; others are called on a thread. Each is called once for all
    episodes that are scored together. Of several the rewards are added up, each times its weight,
    and their names are those of the components; one that gives None for an episode has no part in
    it.

    Args:
        *functions: The functions.
        weights: A factor for each; by default 1.
        conversational: They take lists of messages; otherwise text: the prompt, and all that the
            agent has said.
        columns: What they take beside, of an episode; by default `task_of`. Where a function has
            no ``**kwargs``, it is given what it names.
        messages: How an episode is written as a conversation.

    Raises:
        ValueError: There is no function, or two of one name, or not a weight for each.
    """
    return RewardFunctions(functions, weights, conversational, columns, messages)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or name_of(function))


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of all rows, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


async def _called(
    name: str, function: RewardFunction, batch: dict[str, list[Any]]
) -> list[float | None]:
    """What a function gives for a batch."""
    import asyncio

    arguments = _accepted(name, function, batch)
    if inspect.iscoroutinefunction(function):
        outcome = await function(**arguments)
    else:
        outcome = await asyncio.wrap_future(on_thread(lambda: function(**arguments)))
        outcome = await outcome if hasattr(outcome, "__await__") else outcome
    count = len(batch["completions"])
    if hasattr(outcome, "tolist"):  # a tensor
        outcome = outcome.tolist()
    if not isinstance(outcome, Sequence) or isinstance(outcome, str) or len(outcome) != count:
        raise Unscored(f"{name} gave {outcome!r:.100} for {count} completions")
    return [None if one is None else _number(name, one) for one in outcome]


def _number(name: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        raise Unscored(f"{name} gave {given!r:.100}, which is no number") from None


def _accepted(name: str, function: RewardFunction, batch: dict[str, list[Any]]) -> dict[str, Any]:
    """The columns that a function takes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # it is not written in Python
        return {**batch, **OF_TRAINER}
    given = {**OF_TRAINER, **batch}
    wanted = [one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    missing = [one.name for one in wanted if one.default is one.empty and one.name not in given]
    if missing:
        known = ", ".join(sorted(batch))
        raise Unscored(f"{name} takes {', '.join(missing)}, and the columns are {known}")
    if any(one.kind == one.VAR_KEYWORD for one in parameters):
        return given
    return {one.name: given[one.name] for one in wanted if one.name in given}


def _added(parts: dict[str, float | None], weights: Mapping[str, float]) -> Score:
    try:
        return weighted(parts, weights)
    except Unscored as error:
        return Score(unscored=str(error))


# ------------------------------------------------------------------ the other way


def to_trl(
    scorer: TrajectoryScorer,
    *,
    name: str | None = None,
    episode: Callable[..., Trajectory[Any, Any]] = from_messages,
) -> Callable[..., list[float | None]]:
    """Make a reward function in the manner of TRL of a scorer.

        trainer = GRPOTrainer(reward_funcs=to_trl(scorer), ...)

    The columns of the dataset are the criteria of the task (``trajectory.task.criteria``). What
    could not be scored is None, which TRL leaves out of the sum, and the log says why.

    Args:
        scorer: What scores; a rubric by `from_rubric`. The completions of a batch are scored in one
            call where it takes several, and otherwise 16 at a time; or one after the other, where
            it is a plain function. `bounded` says otherwise.
        name: What TRL calls it in its logs; by default the scorer's name.
        episode: Makes the episode of a prompt, a completion and the keyword ``task``.
    """

    if not isinstance(scorer, Bounded):  # else its limits hold
        many = CONCURRENCY if is_coroutine_function(scorer) else 1
        scorer = bounded(scorer, timeout_s=None, retries=0, concurrency=many)
    limited = scorer

    def reward(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        rows = _rows(prompts, completions, columns)
        scores: list[Score] = result_of(_scored(limited, [_played(episode, row) for row in rows]))
        for score in scores:
            if score.unscored:
                logger.warning("%s gives no reward: %s", reward.__name__, score.unscored)
        return [score.value for score in scores]

    reward.__name__ = reward.__qualname__ = name or name_of(scorer).rpartition(".")[2]
    return reward


def _rows(
    prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """What belongs to each completion; what is not there once for each belongs to none."""
    count = len(completions)
    lists = {
        name: values
        for name, values in columns.items()
        if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == count
    }
    return [
        {
            "prompt": prompts[at],
            "completion": completions[at],
            "columns": {name: values[at] for name, values in lists.items()},
        }
        for at in range(count)
    ]


def _played(
    episode: Callable[..., Trajectory[Any, Any]], row: dict[str, Any]
) -> Trajectory[Any, Any] | Score:
    """The episode of a row; or why it is none."""
    task = row_task(row["prompt"], row["columns"])
    try:
        return episode(row["prompt"], row["completion"], task=task)
    except Unscored as error:
        return Score(unscored=str(error))


async def _scored(scorer: Bounded, played: Sequence[Trajectory[Any, Any] | Score]) -> list[Score]:
    """The score of each, those of all episodes asked for together."""
    episodes = [one for one in played if not isinstance(one, Score)]
    scores = iter(await scorer.score_many(episodes))
    return [one if isinstance(one, Score) else next(scores) for one in played]
