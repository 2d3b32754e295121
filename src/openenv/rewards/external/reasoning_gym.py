"""Scorers of Reasoning Gym (https://github.com/open-thought/reasoning-gym), and scorers for it.

Its datasets score an answer against the entry that was asked, from 0 to 1.

Version 0.1.25 scores by evaluating text in eleven datasets: by `eval`, or by SymPy's
``parse_expr``, which is `eval` too. In nine of them the text is the answer, so that an agent could
answer with a program, which would run here; in the others it is of the entry, which may come from a
file. For the nine the guards of the reasoning_gym environment are put in place, which read literals
and formulas only. Where there are none, or they do not know the dataset, it is refused, unless the
caller says that it may evaluate.
"""

from __future__ import annotations

import copy
import difflib
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from openenv._internal.packages import needs
from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, failed
from openenv.rewards.external.conversation import (
    Message,
    as_messages,
    from_messages,
    last_text,
    row_task,
    task_of,
)
from openenv.rewards.external.fields import with_fields
from openenv.rewards.external.scorers import (
    identity_with,
    plain,
    result_of,
    scored_as,
    scored_now,
)

__all__ = ["ReasoningGymScorer", "entry_of", "from_reasoning_gym", "to_reasoning_gym"]

EVALUATING = frozenset({"eval", "exec", "parse_expr", "sympify"})


def entry_of(trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
    """The entry of the dataset that was asked in an episode.

    It is what the task calls ``entry``; or its ``question``, ``answer`` and ``metadata``; or what
    the reasoning_gym environment shows in the end as ``question``, ``correct_answer`` and
    ``dataset_metadata``.

    Raises:
        Unscored: There is none of these.
    """
    known = task_of(trajectory)
    if isinstance(known.get("entry"), dict):
        return dict(known["entry"])
    if {"question", "answer", "metadata"} <= known.keys():
        return {name: known[name] for name in ("question", "answer", "metadata")}
    shown = plain(trajectory[-1][1]) if trajectory else None
    if isinstance(shown, dict) and shown.get("dataset_metadata") is not None:
        answer, metadata = shown.get("correct_answer"), shown["dataset_metadata"]
        return {"question": shown.get("question"), "answer": answer, "metadata": metadata}
    raise Unscored("the episode has no entry of a dataset: expected task.criteria['entry']")


class ReasoningGymScorer:
    """A dataset of Reasoning Gym; see `from_reasoning_gym`."""

    max_concurrency = 1  # a dataset is nothing that threads may share

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
        self.identity = identity_with(
            f"reasoning_gym:{_version()}:{self.name}:{dataset.config!r}", *made_by
        )
        self._entry = entry
        self._answer = answer
        self._messages = messages
        self._lock = threading.Lock()

    def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode.

        Raises:
            Unscored: There is no entry, or no answer.
            Exception: What the dataset raises at an answer that it cannot read.
        """
        entry = dict(self._entry(trajectory))
        if self._answer is not None:
            answer = self._answer(trajectory)
        else:
            answer = last_text(self._messages(trajectory))
        with self._lock:
            return scored_as(self.dataset.score_answer(answer, entry))

    def score_many(self, trajectories: Sequence[Trajectory[Any, Any]]) -> list[Score]:
        """Score several episodes, one after the other."""
        return [self._told(one) for one in trajectories]

    def _told(self, trajectory: Trajectory[Any, Any]) -> Score:
        try:
            return self(trajectory)
        except Exception as error:
            return failed(error, self.name)


def from_reasoning_gym(
    dataset: Any,
    *,
    entry: Callable[[Trajectory[Any, Any]], Mapping[str, Any]] = entry_of,
    answer: Callable[[Trajectory[Any, Any]], str] | None = None,
    messages: Callable[[Trajectory[Any, Any]], list[Message]] = as_messages,
    may_evaluate: bool = False,
    **config: Any,
) -> ReasoningGymScorer:
    """Make a scorer of a dataset of Reasoning Gym.

        scorer = from_reasoning_gym("leg_counting")

    Args:
        dataset: Its name, or one that was made.
        entry: The entry that was asked in an episode.
        answer: The answer that was given; by default what the agent said last.
        messages: How an episode is written as a conversation.
        may_evaluate: A dataset that runs what an answer, or an entry, says as Python may do so.
        **config: Options of the dataset, where it is named.

    Raises:
        MissingPackage: Reasoning Gym is not installed; or the dataset evaluates text, and what
            guards it is not installed.
        ValueError: There is no such dataset, it does not take these options, or it evaluates text
            and is not guarded.
    """
    with needs("from_reasoning_gym"):
        import reasoning_gym  # pyright: ignore[reportMissingImports]
    if isinstance(dataset, str):
        dataset = _made(reasoning_gym, dataset, config)
    elif config:
        raise ValueError(f"{', '.join(config)}: options are of a dataset that is named")
    if not may_evaluate:
        for one in _parts(dataset):
            _check_guarded(one)
    return ReasoningGymScorer(dataset, entry, answer, messages)


def _made(library: Any, name: str, config: dict[str, Any]) -> Any:
    from reasoning_gym.factory import DATASETS  # pyright: ignore[reportMissingImports]

    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"reasoning_gym has no dataset {name!r}{hint}")
    try:
        return library.create_dataset(name, **{"seed": 0, "size": 1, **config})
    except (TypeError, AssertionError) as error:
        raise ValueError(f"reasoning_gym:{name}: {error}") from error


def _version() -> str:
    from importlib.metadata import version

    return version("reasoning-gym")


# ------------------------------------------------------------------ text that would be run


def _parts(dataset: Any) -> Iterator[Any]:
    """A dataset, and those that a composite one is made of."""
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
    """The names that scoring an answer comes to, by whatever functions of the library."""
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


# ------------------------------------------------------------------ the other way


def to_reasoning_gym(
    dataset: Any,
    scorer: TrajectoryScorer,
    *,
    episode: Callable[..., Trajectory[Any, Any]] = from_messages,
) -> Any:
    """Make a dataset of Reasoning Gym whose answers are scored by a scorer.

    The episode has the question as its prompt, the answer as its only step, and the entry as the
    criteria of its task. Where it cannot be scored, `Unscored` is raised from ``score_answer``.

    Args:
        dataset: A dataset; it stays as it is.
        scorer: What scores; a rubric by `from_rubric`.
        episode: Makes the episode of a prompt, a completion and the keyword ``task``.

    Returns:
        A dataset that asks the same.
    """

    def score_answer(answer: str | None, entry: dict[str, Any]) -> float:
        task = row_task(entry["question"], with_fields(dict(entry)))
        score = result_of(scored_now(scorer, episode(entry["question"], answer or "", task=task)))
        if score.value is None:
            raise Unscored("the scorer had nothing to say")
        return float(score.value)

    other = copy.copy(dataset)
    other.score_answer = score_answer
    return other
