"""Bridges to and from the reward functions of TRL.

TRL (https://huggingface.co/docs/trl, `GRPOTrainer`) calls a function with a batch, ``f(prompts=...,
completions=..., **columns)``. The function returns a list with one number per completion, or None
to leave out a completion. Prompts and completions are text, or messages if the dataset is
conversational. The columns are those of the dataset, as lists. TRL itself need not be installed.
"""

from __future__ import annotations

import asyncio
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
    split_prompt,
    task_from_row,
    task_of,
)
from openenv.rewards.external.limits import CONCURRENCY, BoundedScorer, bounded
from openenv.rewards.external.scorers import (
    add_weighted,
    await_result,
    extend_identity,
    is_coroutine_function,
    on_thread,
    scorer_name,
    to_number,
)

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., Any]

# Arguments that TRL passes in addition to the columns, and their values if there is no trainer.
OF_TRAINER: dict[str, Any] = {"trainer_state": None, "log_extra": None, "log_metric": None}


class RewardFunctions:
    """Reward functions of TRL combined into a trajectory scorer, created by `from_trl`."""

    def __init__(
        self,
        functions: Sequence[RewardFunction],
        weights: Sequence[float] | None,
        is_conversational: bool,
        columns: Callable[[Trajectory[Any, Any]], Mapping[str, Any]],
        messages: Callable[[Trajectory[Any, Any]], list[Message]],
    ) -> None:
        names = [str(getattr(one, "__name__", None) or scorer_name(one)) for one in functions]
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
        self.identity = extend_identity(
            f"trl:{is_conversational}:{weights}", *functions, columns, messages
        )

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode."""
        (score,) = await self.score_many([trajectory])
        return score

    async def score_many(self, trajectories: Sequence[Trajectory[Any, Any]]) -> list[Score]:
        """Score several episodes, with one call of each function.

        Raises:
            Unscored: A function did not return one number per episode, or needs a column that is
                missing.
        """
        rows = [self._row(one) for one in trajectories]
        names = dict.fromkeys(name for row in rows for name in row)
        batch = {name: [row.get(name) for row in rows] for name in names}
        given = {
            name: await _call_function(name, function, batch)
            for name, function in self.functions.items()
        }
        return [
            _add_scores({name: found[at] for name, found in given.items()}, self.weights)
            for at in range(len(rows))
        ]

    def _row(self, trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
        prompt, completion = split_prompt(self._messages(trajectory))
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
    """Make a trajectory scorer from reward functions of TRL.

        def accuracy(completions, answer, **kwargs):
            return [float(said == right) for said, right in zip(completions, answer)]

        scorer = from_trl(accuracy)

    Functions may be ``async def``; others are called on a thread. Each function is called once for
    all episodes that are scored together. The weighted rewards of several functions are added up,
    and become the components under the names of the functions. A function that returns None for an
    episode is left out of that episode's sum.

    Args:
        *functions: The reward functions.
        weights: One factor per function. Default: 1 for each.
        conversational: Pass lists of messages to the functions. By default the functions get text:
            the prompt, and all messages of the agent.
        columns: Function that returns further columns for an episode; by default `task_of`. A
            reward function without ``**kwargs`` gets only the columns that it names.
        messages: Function that converts an episode to a conversation.

    Raises:
        ValueError: There are no functions, two functions have the same name, or the number of
            weights differs from the number of functions.
    """
    return RewardFunctions(functions, weights, conversational, columns, messages)


async def _call_function(
    name: str, function: RewardFunction, batch: dict[str, list[Any]]
) -> list[float | None]:
    arguments = _select_arguments(name, function, batch)
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
    return [None if one is None else to_number(name, one) for one in outcome]


def _select_arguments(
    name: str, function: RewardFunction, batch: dict[str, list[Any]]
) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # no signature: not written in Python
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


def _add_scores(parts: dict[str, float | None], weights: Mapping[str, float]) -> Score:
    try:
        return add_weighted(parts, weights)
    except Unscored as error:
        return Score(unscored=str(error))


# ------------------------------------------------------------------ the reverse direction


def to_trl(
    scorer: TrajectoryScorer,
    *,
    name: str | None = None,
    episode: Callable[..., Trajectory[Any, Any]] = from_messages,
) -> Callable[..., list[float | None]]:
    """Make a reward function of TRL from a trajectory scorer.

        trainer = GRPOTrainer(reward_funcs=to_trl(scorer), ...)

    The columns of the dataset become the criteria of the task (``trajectory.task.criteria``). An
    episode that cannot be scored gets None, which TRL leaves out of the sum, and the log has the
    reason.

    Args:
        scorer: The scorer; use `from_rubric` for a rubric. A scorer with ``score_many`` scores a
            batch in one call. Otherwise a coroutine function scores 16 episodes at a time, and a
            plain function one. Wrap the scorer in `bounded` to choose other limits.
        name: Name of the function in TRL's logs; by default the scorer's name.
        episode: Function that builds an episode from a prompt, a completion and a keyword ``task``.
    """

    if not isinstance(scorer, BoundedScorer):  # otherwise keep its limits
        many = CONCURRENCY if is_coroutine_function(scorer) else 1
        scorer = bounded(scorer, timeout_s=None, retries=0, concurrency=many)
    limited = scorer

    def reward(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        count = len(completions)
        lists = {  # values of another length do not belong to rows
            name: values
            for name, values in columns.items()
            if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == count
        }
        played = [
            _make_episode(
                episode, prompts[at], completions[at], {name: lists[name][at] for name in lists}
            )
            for at in range(count)
        ]
        episodes = [one for one in played if not isinstance(one, Score)]
        found = iter(await_result(limited.score_many(episodes)))
        scores = [one if isinstance(one, Score) else next(found) for one in played]
        for score in scores:
            if score.unscored:
                logger.warning("%s gives no reward: %s", reward.__name__, score.unscored)
        return [score.value for score in scores]

    reward.__name__ = reward.__qualname__ = name or scorer_name(scorer).rpartition(".")[2]
    return reward


def _make_episode(
    episode: Callable[..., Trajectory[Any, Any]], prompt: Any, completion: Any, columns: Any
) -> Trajectory[Any, Any] | Score:
    """Make the episode of a row, or an unscored `Score` that gives the reason."""
    try:
        return episode(prompt, completion, task=task_from_row(prompt, columns))
    except Unscored as error:
        return Score(unscored=str(error))
