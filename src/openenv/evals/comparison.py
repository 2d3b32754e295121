"""Comparisons of two runs, task by task.

The mean of each task in one run is compared with its mean in the other run. A task is equally hard
in both runs, so pairing removes most of the noise. Differences are tested with a paired permutation
test, and their intervals are from a bootstrap over tasks. McNemar's test compares the numbers of
tasks that only one run solves. The p-values of the figures are adjusted by Holm's method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from openenv.evals.metrics import (
    COSTS,
    Evaluation,
    EvaluationError,
    StoredFigures,
    TaskResult,
)

__all__ = ["Comparison", "ComparisonError", "FigureDifference", "TaskDifference", "compare"]

# A task counts as solved if at least this share of its samples is solved.
SOLVED_SHARE = 0.5

# Maximum number of tasks that a warning names.
NAMED = 3


class ComparisonError(EvaluationError):
    """Two runs that cannot be compared."""


class FigureDifference(StoredFigures):
    """A figure in both runs: means over the tasks that have the figure in both."""

    name: str
    before: float | None = None
    after: float | None = None
    difference: float | None = None  # `after` minus `before`
    low: float | None = None
    high: float | None = None
    p_value: float | None = None  # of the permutation test; None if the figure is not tested
    p_adjusted: float | None = None  # by Holm's method
    tasks: int = 0  # number of tasks that have the figure in both runs


class TaskDifference(StoredFigures):
    """The mean success and reward of a task in both runs."""

    success_before: float | None = None
    success_after: float | None = None
    reward_before: float | None = None
    reward_after: float | None = None


class Comparison(StoredFigures):
    """The differences of two runs, created by `compare`."""

    before: str  # name of the first run
    after: str  # name of the second run
    level: float = 0.95  # confidence level of the intervals
    tasks: int  # number of tasks in both runs
    only_before: list[str] = Field(default_factory=list)  # tasks of the first run only
    only_after: list[str] = Field(default_factory=list)  # tasks of the second run only
    differences: list[FigureDifference] = Field(default_factory=list)
    # Tasks that only the second run solves.
    fixed: list[str] = Field(default_factory=list)
    # Tasks that only the first run solves.
    regressed: list[str] = Field(default_factory=list)
    solved_in_both: int = 0
    solved_in_neither: int = 0
    mcnemar_p_value: float | None = None
    # Other differences between the runs, and the tasks and samples that were left out.
    warnings: list[str] = Field(default_factory=list)
    per_task: dict[str, TaskDifference] = Field(default_factory=dict)


def compare(
    before: Evaluation,
    after: Evaluation,
    *,
    names: tuple[str, str] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    permutations: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two runs of the same tasks.

    Tasks in only one of the runs are left out. If a task has seeds in common, only samples of these
    seeds are compared; otherwise all samples are compared. A task counts as solved if at least half
    of its samples are solved.

    Args:
        before: The first run.
        after: The second run. Differences are `after` minus `before`.
        names: The names of the two runs; by default the names of the policies, or ``before`` and
            ``after`` if these names are equal or missing.
        level: Confidence level of the intervals, between 0 and 1.
        resamples: Number of bootstrap resamples.
        permutations: Number of sign patterns that the permutation tests draw.
        seed: Seed of the resamples and the sign patterns.

    Raises:
        ComparisonError: The runs have no task in common, or their figures mean different things:
            the thresholds, the meaning of rewards, or the treatment of samples without a reward
            differ.
        ValueError: An argument is out of range.
    """
    if not 0.0 < level < 1.0 or resamples < 1 or permutations < 1:
        raise ValueError(
            f"level={level}, resamples={resamples}, permutations={permutations}; expected "
            "0 < level < 1, and at least one of the others"
        )
    _check_same_meaning(before, after)
    common = [name for name in before.per_task if name in after.per_task]
    if not common:
        raise ComparisonError(
            f"the two runs have no task in common: {_named(list(before.per_task))} in the one, "
            f"{_named(list(after.per_task))} in the other"
        )
    first, second = names or (before.policy, after.policy)
    if not names and (not first or not second or first == second):
        first, second = "before", "after"
    pairs = {name: _matched(before.per_task[name], after.per_task[name]) for name in common}
    compared = Comparison(
        before=first,
        after=second,
        level=level,
        tasks=len(common),
        only_before=[name for name in before.per_task if name not in after.per_task],
        only_after=[name for name in after.per_task if name not in before.per_task],
        differences=_differences(before, after, pairs, level, resamples, permutations, seed),
        per_task={
            name: TaskDifference(
                success_before=one.success,
                success_after=other.success,
                reward_before=one.reward,
                reward_after=other.reward,
            )
            for name, (one, other) in pairs.items()
        },
    )
    _tell_solved(compared)
    compared.warnings = _warnings(before, after, compared)
    return compared


def _check_same_meaning(before: Evaluation, after: Evaluation) -> None:
    if before.threshold != after.threshold:
        raise ComparisonError(
            f"one run counts a sample as solved from {before.threshold:g} on, the other from "
            f"{after.threshold:g}: evaluate both with the same threshold"
        )
    if before.unscored_policy != after.unscored_policy:
        raise ComparisonError(
            f"samples without a reward: {before.unscored_policy!r} in one run, "
            f"{after.unscored_policy!r} in the other; evaluate both with the same"
        )
    given_up = [run.counts.get("given_up") for run in (before, after)]
    if before.unscored_policy == "fail" and None in given_up:
        raise ComparisonError(
            "samples without a reward: 'fail' meant all of them when one of the runs was "
            "evaluated, and means those that the policy gave up now; evaluate its rollouts anew"
        )
    if any(given_up) and before.lowest != after.lowest:
        raise ComparisonError(
            f"samples that the policy gave up count as a reward of {before.lowest} in one run, of "
            f"{after.lowest} in the other; evaluate both with the same lowest reward"
        )
    if before.reward is None or after.reward is None:
        return
    for what in ("kind", "range"):
        one, other = before.reward.get(what), after.reward.get(what)
        if one != other:
            raise ComparisonError(
                f"rewards mean different things in the two runs: their {what} is {one!r} in one, "
                f"{other!r} in the other"
            )


def _matched(before: TaskResult, after: TaskResult) -> tuple[TaskResult, TaskResult]:
    """Return the samples of the seeds that both runs have, or all samples if there are none."""
    common = _seeds(before) & _seeds(after)
    if not common:
        return before, after
    return _of_seeds(before, common), _of_seeds(after, common)


def _seeds(task: TaskResult) -> set[int | None]:
    return {sample.seed for sample in task.samples}


def _of_seeds(task: TaskResult, seeds: set[int | None]) -> TaskResult:
    kept = [sample for sample in task.samples if sample.seed in seeds]
    return task if len(kept) == len(task.samples) else task.model_copy(update={"samples": kept})


# ------------------------------------------------------------------ figures


def _differences(
    before: Evaluation,
    after: Evaluation,
    pairs: Mapping[str, tuple[TaskResult, TaskResult]],
    level: float,
    resamples: int,
    permutations: int,
    seed: int,
) -> list[FigureDifference]:
    import numpy as np

    from openenv.evals import statistics
    from openenv.evals.statistics import RELATIVE

    shared = [f"component/{name}" for name in before.components if name in after.components]
    tested = ["solved", "reward", *shared]
    figures = [*tested, *COSTS]
    means = np.array(
        [[[task.mean(figure) for task in pair] for figure in figures] for pair in pairs.values()],
        dtype=np.float64,  # converts None to NaN
    )
    if before.has_unknown_rewards or after.has_unknown_rewards:
        means[:, figures.index("reward")] = np.nan
    apart = means[:, :, 1] - means[:, :, 0]
    apart[np.abs(apart) <= RELATIVE * np.abs(means).sum(axis=2)] = 0.0  # only rounding errors
    known = np.isfinite(apart)
    intervals = statistics.bootstrap_intervals(
        np.where(known, apart, 0.0),
        known.astype(np.float64),
        level=level,
        resamples=resamples,
        seed=seed,
    )
    p_values = statistics.permutation_p_values(
        apart[:, : len(tested)], resamples=permutations, seed=seed
    )
    adjusted = statistics.holm(p_values)
    found = []
    for place, figure in enumerate(figures):
        has, name = known[:, place], "success" if figure == "solved" else figure
        if not has.any():
            found.append(FigureDifference(name=name))
            continue
        low, high = intervals[place] or (None, None)
        is_tested = place < len(tested)
        found.append(
            FigureDifference(
                name=name,
                before=float(means[has, place, 0].mean()),
                after=float(means[has, place, 1].mean()),
                difference=float(apart[has, place].mean()),
                low=low,
                high=high,
                p_value=p_values[place] if is_tested else None,
                p_adjusted=adjusted[place] if is_tested else None,
                tasks=int(has.sum()),
            )
        )
    return found


def _tell_solved(compared: Comparison) -> None:
    from openenv.evals.statistics import mcnemar

    for name, task in compared.per_task.items():
        if task.success_before is None or task.success_after is None:
            continue
        was, is_now = task.success_before >= SOLVED_SHARE, task.success_after >= SOLVED_SHARE
        if was != is_now:
            (compared.fixed if is_now else compared.regressed).append(name)
        elif is_now:
            compared.solved_in_both += 1
        else:
            compared.solved_in_neither += 1
    compared.mcnemar_p_value = mcnemar(len(compared.fixed), len(compared.regressed))


# ------------------------------------------------------------------ warnings


def _warnings(before: Evaluation, after: Evaluation, compared: Comparison) -> list[str]:
    left_out = [
        f"{len(tasks):,} tasks are of {name} only, and left out: {_named(tasks)}."
        for name, tasks in (
            (compared.before, compared.only_before),
            (compared.after, compared.only_after),
        )
        if tasks
    ]
    matching: dict[str, list[str]] = {}
    for name in before.per_task:
        if name in after.per_task:
            for what in _unlike(before.per_task[name], after.per_task[name]):
                matching.setdefault(what, []).append(name)
    unlike = [f"{len(tasks):,} tasks {what}: {_named(tasks)}." for what, tasks in matching.items()]
    on_rewards = _warnings_on_rewards(before, after, compared)
    return [*left_out, *_warnings_on_runs(before, after), *unlike, *on_rewards]


def _unlike(one: TaskResult, other: TaskResult) -> Iterator[str]:
    seeds = _seeds(one), _seeds(other)
    if not seeds[0] & seeds[1]:
        yield "have other seeds in the two runs, and may be other tasks"
    elif seeds[0] != seeds[1]:
        yield "have seeds in one run only, which are left out"
    elif len(one.samples) != len(other.samples):
        yield "have more samples in one run than in the other"


def _warnings_on_runs(before: Evaluation, after: Evaluation) -> Iterator[str]:
    if before.environment != after.environment:
        yield (
            f"The environment is called {before.environment!r} in one run, and "
            f"{after.environment!r} in the other."
        )
    if (before.reward is None) != (after.reward is None):
        yield "Only one of the runs says what its rewards mean."
    if set(before.components) != set(after.components):
        yield (
            f"The components of rewards are {list(before.components)} in one run, and "
            f"{list(after.components)} in the other."
        )
    changed = "; ".join(
        f"{name} {before.settings.get(name)!r:.80} and {after.settings.get(name)!r:.80}"
        for name in sorted({*before.settings, *after.settings})
        if before.settings.get(name) != after.settings.get(name)
    )
    if changed:
        yield f"The runs were set up differently: {changed}."
    if before.reproducible is False or after.reproducible is False:
        yield "The environment did not show the same twice for one task and seed."


def _warnings_on_rewards(
    before: Evaluation, after: Evaluation, compared: Comparison
) -> Iterator[str]:
    """Warn about samples without a reward: without these, often hard, a run looks too good."""
    runs = ((before, compared.before), (after, compared.after))
    if before.has_unknown_rewards or after.has_unknown_rewards:
        told = "; ".join(f"{run.counts.get('given_up', 0):,} of {name}" for run, name in runs)
        yield (
            f"Rewards are not compared: samples were given up by the policy ({told}), and no range "
            "of rewards says what these are worth. Give the lowest reward to both evaluations."
        )
    elif unknown := [
        name
        for name, task in compared.per_task.items()
        if task.reward_before is None or task.reward_after is None
    ]:
        yield (
            f"{len(unknown):,} tasks have no sample with a known reward in one of the runs, and "
            f"are left out of rewards: {_named(unknown)}."
        )
    left_out = [
        run.counts["samples"] - run.counts["scored"] - run.counts.get("given_up", 0)
        for run, _ in runs
    ]
    if any(left_out):
        told = "; ".join(
            f"{count:,} of {run.counts['samples']:,} of {name}"
            for count, (run, name) in zip(left_out, runs, strict=True)
        )
        yield f"Samples without a known reward, which are in no mean of rewards: {told}."


def _named(tasks: Sequence[str]) -> str:
    more = len(tasks) - NAMED
    return ", ".join(tasks[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
