"""Bridges to and from Reasoning Gym (https://github.com/open-thought/reasoning-gym).

A dataset of Reasoning Gym scores an answer to one of its entries with a number from 0 to 1.

In version 0.1.25 eleven datasets score by evaluating text with `eval`, or with SymPy's
``parse_expr``, which uses `eval`. In nine of them the text is the answer, so an agent could answer
with a program, which would run in this process. In the other two the text is part of the entry,
which may come from a file. For the nine this module installs the guards of the reasoning_gym
environment, which accept only literals and formulas. A dataset without a guard is refused unless
the caller passes ``may_evaluate=True``.
"""

from __future__ import annotations

import copy
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from openenv._internal.packages import needs
from openenv._internal.quoting import did_you_mean
from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, score_of_failure
from openenv.rewards.external.conversation import (
    Message,
    as_messages,
    from_messages,
    last_text,
    task_from_row,
    task_of,
)
from openenv.rewards.external.fields import with_fields
from openenv.rewards.external.scorers import (
    await_result,
    extend_identity,
    make_score,
    score_now,
    to_json_value,
)

EVALUATING = frozenset({"eval", "exec", "parse_expr", "sympify"})


def entry_of(trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
    """Return the dataset entry that an episode is about.

    The entry is the task's ``entry``; or the task's ``question``, ``answer`` and ``metadata``; or
    the last observation's ``question``, ``correct_answer`` and ``dataset_metadata``, as the
    reasoning_gym environment returns them.

    Raises:
        Unscored: The episode has none of these.
    """
    known = task_of(trajectory)
    if isinstance(known.get("entry"), dict):
        return dict(known["entry"])
    if {"question", "answer", "metadata"} <= known.keys():
        return {name: known[name] for name in ("question", "answer", "metadata")}
    shown = to_json_value(trajectory[-1][1]) if trajectory else None
    if isinstance(shown, dict) and shown.get("dataset_metadata") is not None:
        answer, metadata = shown.get("correct_answer"), shown["dataset_metadata"]
        return {"question": shown.get("question"), "answer": answer, "metadata": metadata}
    raise Unscored("the episode has no entry of a dataset: expected task.criteria['entry']")


class ReasoningGymScorer:
    """A dataset of Reasoning Gym as a trajectory scorer, created by `from_reasoning_gym`."""

    max_concurrency = 1  # datasets are not thread-safe

    def __init__(
        self,
        dataset: Any,
        entry: Callable[[Trajectory[Any, Any]], Mapping[str, Any]],
        answer: Callable[[Trajectory[Any, Any]], str] | None,
        messages: Callable[[Trajectory[Any, Any]], list[Message]],
    ) -> None:
        self.dataset = dataset
        self.name = type(dataset).__name__
        made_by = (entry, messages) if answer is None else (entry, answer)
        version = metadata.version("reasoning-gym")
        self.identity = extend_identity(
            f"reasoning_gym:{version}:{self.name}:{dataset.config!r}", *made_by
        )
        self._entry = entry
        self._answer = answer
        self._messages = messages
        self._lock = threading.Lock()

    def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode.

        Raises:
            Unscored: The episode has no entry or no answer.
        """
        entry = dict(self._entry(trajectory))
        if self._answer is not None:
            answer = self._answer(trajectory)
        else:
            answer = last_text(self._messages(trajectory))
        with self._lock:
            return make_score(self.dataset.score_answer(answer, entry))

    def score_many(self, trajectories: Sequence[Trajectory[Any, Any]]) -> list[Score]:
        """Score several episodes in turn."""
        return [self._score_or_reason(one) for one in trajectories]

    def _score_or_reason(self, trajectory: Trajectory[Any, Any]) -> Score:
        try:
            return self(trajectory)
        except Exception as error:
            return score_of_failure(error, self.name)


def from_reasoning_gym(
    dataset: Any,
    *,
    entry: Callable[[Trajectory[Any, Any]], Mapping[str, Any]] = entry_of,
    answer: Callable[[Trajectory[Any, Any]], str] | None = None,
    messages: Callable[[Trajectory[Any, Any]], list[Message]] = as_messages,
    may_evaluate: bool = False,
    **config: Any,
) -> ReasoningGymScorer:
    """Make a trajectory scorer from a dataset of Reasoning Gym.

        scorer = from_reasoning_gym("leg_counting")

    Args:
        dataset: The name of a dataset, or a dataset.
        entry: Function that returns the dataset entry of an episode; by default `entry_of`.
        answer: Function that returns the agent's answer; by default the text of the agent's last
            message.
        messages: Function that converts an episode to a conversation.
        may_evaluate: Allow a dataset that evaluates the text of an answer or entry as Python.
        **config: Options of the dataset, if `dataset` is a name.

    Raises:
        MissingPackage: Reasoning Gym is not installed, or the dataset evaluates text and the
            reasoning_gym environment, which has the guards, is not installed.
        ValueError: The dataset is unknown, rejects these options, or evaluates text without a
            guard; or options are given for a dataset that is not a name.
    """
    with needs("from_reasoning_gym"):
        import reasoning_gym  # pyright: ignore[reportMissingImports]
    if isinstance(dataset, str):
        dataset = _make_dataset(reasoning_gym, dataset, config)
    elif config:
        raise ValueError(f"{', '.join(config)}: options need a dataset given by name")
    if not may_evaluate:
        for one in _parts(dataset):
            _check_guarded(one)
    return ReasoningGymScorer(dataset, entry, answer, messages)


def _make_dataset(library: Any, name: str, config: dict[str, Any]) -> Any:
    from reasoning_gym.factory import DATASETS  # pyright: ignore[reportMissingImports]

    if name not in DATASETS:
        raise ValueError(f"reasoning_gym has no dataset {name!r}{did_you_mean(name, DATASETS)}")
    try:
        return library.create_dataset(name, **{"seed": 0, "size": 1, **config})
    except (TypeError, AssertionError) as error:
        raise ValueError(f"reasoning_gym:{name}: {error}") from error


# ------------------------------------------------------------------ datasets that evaluate text


def _parts(dataset: Any) -> Iterator[Any]:
    """Iterate over a dataset and the datasets inside a composite."""
    yield dataset
    inner = getattr(dataset, "datasets", None)
    for one in inner.values() if isinstance(inner, dict) else ():
        yield from _parts(one)


def _check_guarded(dataset: Any) -> None:
    evaluating = sorted(EVALUATING & set(_names_used(type(dataset))))
    if not evaluating:
        return
    what = (
        f"{type(dataset).__name__} of reasoning_gym scores by {', '.join(evaluating)}, which runs "
        "here what an answer, or the entry, says"
    )
    with needs(f"{what}: from_reasoning_gym"):
        from reasoning_gym_env.server import guard
    guard.install()
    if sys.modules[type(dataset).__module__] not in (*guard.EVALUATED, *guard.PARSED):
        raise ValueError(
            f"{what}, and the guard does not know it; may_evaluate=True has it done all the same"
        )


def _names_used(cls: type) -> set[str]:
    """Return all names that scoring an answer uses, following calls within the library."""
    seen: set[Any] = set()
    names: set[str] = set()
    waiting = [cls.score_answer]  # type: ignore[attr-defined]
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        used = set(_names_in(function.__code__))
        names |= used
        found = [
            candidate
            for name in used
            for candidate in (getattr(cls, name, None), function.__globals__.get(name))
        ]
        waiting += [
            one
            for one in found
            if isinstance(one, types.FunctionType) and one.__module__.startswith("reasoning_gym")
        ]
    return names


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


# ------------------------------------------------------------------ the reverse direction


def to_reasoning_gym(
    dataset: Any,
    scorer: TrajectoryScorer,
    *,
    episode: Callable[..., Trajectory[Any, Any]] = from_messages,
) -> Any:
    """Make a copy of a dataset of Reasoning Gym that scores answers with a trajectory scorer.

    The episode has the question as its prompt, the answer as its only step, and the entry as the
    criteria of its task. ``score_answer`` raises `Unscored` if the episode cannot be scored.

    Args:
        dataset: A dataset; not modified.
        scorer: The scorer; use `from_rubric` for a rubric.
        episode: Function that builds an episode from a prompt, a completion and a keyword ``task``.

    Returns:
        A dataset with the same questions.
    """

    def score_answer(answer: str | None, entry: dict[str, Any]) -> float:
        task = task_from_row(entry["question"], with_fields(dict(entry)))
        score = await_result(score_now(scorer, episode(entry["question"], answer or "", task=task)))
        if score.value is None:
            raise Unscored("the scorer had nothing to score")
        return float(score.value)

    other = copy.copy(dataset)
    other.score_answer = score_answer
    return other
