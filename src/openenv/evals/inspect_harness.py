"""Evaluation harness for tasks of Inspect AI."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openenv._internal.packages import needs
from openenv.errors import IgnoredArgumentWarning
from openenv.evals.base import EvalHarness

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog  # pyright: ignore[reportMissingImports]

__all__ = ["InspectAIHarness"]

INSTALL = "pip install 'openenv[inspect]'"

# Parameters passed to `inspect_ai.eval` unchanged, unless they are None (or empty).
PASSED = (
    *("max_samples", "max_connections", "temperature", "max_tokens"),
    *("epochs", "solver", "model_base_url"),
)
PASSED_UNLESS_EMPTY = ("task_args", "model_args")
READ = {"model", "task", "scorer", *PASSED, *PASSED_UNLESS_EMPTY}


class InspectAIHarness(EvalHarness):
    """Runs a task of Inspect AI (https://inspect.aisi.org.uk) and returns the metrics.

    `run` reads these `eval_parameters`; others are ignored with a warning:

    - ``model``: the model, such as ``openai/gpt-4o``. Required.
    - ``task``: a task, or a name of a task that Inspect AI knows; by default `dataset`.
    - ``task_args``, ``model_args``: dicts of arguments of the task and the model.
    - ``scorer``: a scorer that replaces the task's own scorers.
    - ``solver``, ``epochs``, ``max_samples``, ``max_connections``, ``temperature``, ``max_tokens``,
      ``model_base_url``: arguments of `inspect_ai.eval`.

    Each metric has the shortest name that is unique: its own name, such as ``accuracy``, if needed
    with the scorer (``match/accuracy``), the reducer of the epochs and the task. A metric that is
    NaN, because no sample was scored, is None. ``unscored_samples`` and ``incomplete_samples``
    count these samples and are left out if 0.

    Args:
        log_dir: The folder of Inspect AI's logs; by default Inspect AI's default.
    """

    def __init__(self, *, log_dir: str | None = None) -> None:
        self.log_dir = log_dir

    def run(
        self,
        harness_version: str,
        library_versions: dict[str, str],
        dataset: str,
        eval_parameters: dict[str, Any],
    ) -> dict[str, Any]:
        """Run the task.

        Raises:
            MissingPackage: The extra ``inspect`` is not installed; a subclass of ``ImportError``.
            RuntimeError: There is no log, or the status of a log is not ``success``.
            ValueError: There is no model.
        """
        with needs("InspectAIHarness", INSTALL):
            import inspect_ai  # pyright: ignore[reportMissingImports]
        arguments = self._arguments(eval_parameters)
        scorer = eval_parameters.get("scorer")
        # Some versions have no parameter `scorer`, only a flag `score`: score the logs afterwards.
        names = inspect.signature(inspect_ai.eval).parameters
        scores_later = scorer is not None and "score" in names and "scorer" not in names
        if scores_later:
            arguments["score"] = False
        elif scorer is not None:
            arguments["scorer"] = scorer
        task = eval_parameters.get("task")
        logs = inspect_ai.eval(dataset if task is None else task, **arguments)
        _check(logs)
        if scores_later:
            logs = [inspect_ai.score(log, scorer, action="overwrite") for log in logs]
            for log in logs:  # otherwise the log files would not have the scores
                inspect_ai.log.write_eval_log(log)
        return {**_metrics(logs), **_left_out(logs)}

    def _arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        if not parameters.get("model"):
            raise ValueError("eval_parameters['model'] has to be given, 'openai/gpt-4o' say")
        unknown = sorted(set(parameters) - READ)
        if unknown:
            warnings.warn(
                f"eval_parameters {', '.join(unknown)}: InspectAIHarness does not read these",
                IgnoredArgumentWarning,
                stacklevel=4,
            )
        arguments = {name: parameters.get(name) for name in PASSED}
        arguments.update({name: parameters.get(name) or None for name in PASSED_UNLESS_EMPTY})
        arguments.update(model=parameters["model"], log_dir=self.log_dir)
        return {name: value for name, value in arguments.items() if value is not None}


def _check(logs: Sequence[EvalLog]) -> None:
    if not logs:
        raise RuntimeError("Inspect AI gave no log: is there such a task, for such a model?")
    for log in logs:
        if log.status != "success":
            error = getattr(log, "error", None)
            why = f": {error.message}" if error else ""
            raise RuntimeError(f"Inspect AI says {log.status!r} of {_task_of(log)}{why}")


def _metrics(logs: Iterable[EvalLog]) -> dict[str, float | None]:
    """Return the metrics, each under the shortest name that is unique."""
    found = [metric for log in logs for metric in _of_log(log)]
    scores: dict[str, float | None] = {}
    while found:
        common, rest = Counter(names[0] for names, _ in found), []
        for (name, *longer), value in found:
            if common[name] > 1 and longer:
                rest.append((longer, value))
                continue
            free = itertools.chain([name], (f"{name} ({n})" for n in itertools.count(2)))
            scores[next(one for one in free if one not in scores)] = value
        found = rest
    return scores


def _of_log(log: EvalLog) -> Iterator[tuple[list[str], float | None]]:
    """Yield the metrics of a log, each with its possible names from the shortest to the longest."""
    for score in log.results.scores if log.results else ():
        scorer, reducer = _text(score, "name", "scorer"), _text(score, "reducer", "")
        for metric, one in score.metrics.items():
            by_scorer = f"{scorer}/{metric}"
            by_reducer = f"{scorer}/{reducer}/{metric}" if reducer else by_scorer
            names = [metric, by_scorer, by_reducer, f"{_task_of(log)}/{by_reducer}"]
            is_nan = isinstance(one.value, float) and math.isnan(one.value)
            yield names, None if is_nan else one.value


# The fields of logs other than metrics differ between versions of Inspect AI.


def _task_of(log: EvalLog) -> str:
    return _text(getattr(log, "eval", None), "task", "the task")


def _text(of: Any, name: str, otherwise: str) -> str:
    found = getattr(of, name, None)
    return found if isinstance(found, str) else otherwise


def _number(of: Any, name: str, otherwise: int) -> int:
    found = getattr(of, name, None)
    return found if isinstance(found, int) else otherwise


def _left_out(logs: Iterable[EvalLog]) -> dict[str, int]:
    results = [log.results for log in logs if log.results]
    unscored = incomplete = 0
    for one in results:
        unscored += max((_number(score, "unscored_samples", 0) for score in one.scores), default=0)
        completed = _number(one, "completed_samples", 0)
        incomplete += _number(one, "total_samples", completed) - completed
    counts = {"unscored_samples": unscored, "incomplete_samples": incomplete}
    return {name: count for name, count in counts.items() if count}
