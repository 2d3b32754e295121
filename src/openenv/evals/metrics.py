"""Metrics of rollouts: success rates, rewards and costs of a policy, with confidence intervals.

A sample counts as solved if its reward is at least the threshold. A sample without a known reward
never counts as reward 0. If the policy gave up the sample (the policy stopped, ran into a limit, or
raised; see `openenv.rollouts.endings`), the sample counts as not solved and gets the lowest reward
that the environment declares, so that a policy cannot gain by giving up on hard tasks. If the
environment or a grader failed, the sample is left out, counted separately and reported in
`Evaluation.notes`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field

from openenv.errors import OpenEnvError
from openenv.reward import RewardSpec
from openenv.rollouts.endings import is_given_up, is_left
from openenv.rollouts.endings import lowest_reward as lowest_of
from openenv.rollouts.records import Rollout, RolloutHeader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = [
    "ASKED",
    "Breakdown",
    "Estimate",
    "Evaluation",
    "EvaluationError",
    "SampleResult",
    "TaskResult",
    "Unscored",
    "evaluate",
]

Unscored = Literal["fail", "skip", "fail-all"]
"""The treatment of samples without a known reward:

- ``fail``: Samples that the policy gave up count as not solved and get the lowest reward. Others,
  for which the environment or a grader failed, are left out.
- ``skip``: All are left out. A policy that gives up on hard tasks then looks better than it is.
- ``fail-all``: Samples that the policy gave up count as for ``fail``. Others count as not solved,
  and are left out of means of rewards.
"""

ASKED = "as asked for"
"""The value of `Evaluation.threshold_from` for a threshold that was passed to `evaluate`."""

Method = Literal["wilson", "bootstrap", "student"]

# How far below the threshold a reward may be because of rounding.
RELATIVE, ABSOLUTE = 1e-9, 1e-9

# Up to this k there is a pass@k for each k; beyond, for powers of two and the largest k.
EACH_K_UP_TO = 16

# If there are more than 12 difficulties, neighbors are merged into at most 10 parts.
DIFFICULTIES, PARTS = 12, 10

# Maximum number of reasons that a note quotes.
NAMED_IN_A_NOTE = 3


class EvaluationError(OpenEnvError, ValueError):
    """Rollouts or a result that cannot be evaluated."""


class StoredFigures(BaseModel):
    """Base class of stored figures. Unknown fields of later versions are ignored."""

    model_config = ConfigDict(extra="ignore")


class Estimate(StoredFigures):
    """A figure with a confidence interval.

    `low` and `high` are None if no interval can be computed: there is only one task, or all tasks
    have the same mean. Rates with a value always have an interval.
    """

    value: float | None  # the figure; None if no sample has it
    low: float | None = None
    high: float | None = None
    stderr: float | None = None  # standard error, with tasks as the sampling unit
    method: Method | None = None  # how the interval was computed
    samples: int = 0  # number of samples that have the figure
    tasks: int = 0  # number of tasks that have the figure


class SampleResult(StoredFigures):
    """The result of a sample of a task."""

    id: str
    sample: int = 0
    seed: int | None = None
    group: str = ""  # equal for samples of the same task and seed
    # None if unknown. If the policy gave up the sample, the reward that the sample counts as.
    reward: float | None = None
    components: dict[str, float] = Field(default_factory=dict)
    solved: bool | None = None  # None if the sample is left out
    given_up: bool = False  # True if the sample has no reward because of the policy
    # Added to the reward because the policy left the episode early; see `RewardSpec.unfinished`.
    cost: float = 0.0
    outcome: str = "done"
    unscored: str | None = None  # why the sample has no reward
    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def is_scored(self) -> bool:
        """True if the environment or a scorer gave a reward."""
        return self.outcome != "failed" and self.reward is not None and not self.given_up


class TaskResult(StoredFigures):
    """The results of all samples of a task."""

    group: str | None = None  # the family of tasks to which the task belongs
    difficulty: float | None = None
    samples: list[SampleResult] = Field(default_factory=list)

    @property
    def reward(self) -> float | None:
        """The mean reward of the samples that have one.

        None if no sample has a reward, or if the reward of a given-up sample is unknown.
        """
        return self.mean("reward")

    @property
    def success(self) -> float | None:
        """The share of solved samples; None if all are left out."""
        return _mean([sample.solved for sample in self.samples])

    @property
    def counted(self) -> int:
        """Number of samples that count as solved or not solved."""
        return sum(sample.solved is not None for sample in self.samples)

    @property
    def times_solved(self) -> int:
        """Number of solved samples."""
        return sum(sample.solved is True for sample in self.samples)

    def mean(self, figure: str) -> float | None:
        """Return the mean of a figure over the samples that have it; see `figure_of`."""
        if figure == "reward" and any(map(_is_of_unknown_worth, self.samples)):
            return None
        return _mean([figure_of(sample, figure) for sample in self.samples])


class Breakdown(StoredFigures):
    """The figures of a subset of the tasks."""

    name: str
    tasks: int
    samples: int
    success: Estimate
    reward: Estimate


class Evaluation(StoredFigures):
    """The figures of a run, created by `evaluate`."""

    environment: str = ""
    policy: str = ""
    reward: dict[str, Any] | None = None  # meaning of rewards, from `RewardSpec.as_data`
    threshold: float  # minimum reward of a solved sample
    threshold_from: str = ""  # source of the threshold
    unscored_policy: Unscored = "skip"  # the default is the rule of older results, which omit it
    # Reward of samples that the policy gave up, unless their episodes declare another range of
    # rewards.
    lowest: float | None = None
    level: float = 0.95  # confidence level of the intervals
    resamples: int = 2000  # bootstrap resamples
    seed: int = 0  # seed of the bootstrap
    reproducible: bool | None = None  # result of `check_reproducible`; None if unknown
    settings: dict[str, Any] = Field(default_factory=dict)  # settings of the run
    started_at: float = 0.0  # seconds since the epoch
    # Number of `tasks` and `samples`; numbers of samples that are `scored`, `unscored`, `failed`,
    # `done`, `truncated`, ended by a `limit`, or `given_up` by the policy.
    counts: dict[str, int]
    success: Estimate
    pass_at_k: dict[int, Estimate] = Field(default_factory=dict)
    mean_reward: Estimate
    median_reward: float | None = None
    components: dict[str, Estimate] = Field(default_factory=dict)
    # `error`, `unscored`, `truncation`, `limit` and `given_up`.
    rates: dict[str, Estimate] = Field(default_factory=dict)
    # Means per sample: `steps`, `prompt_tokens`, `completion_tokens`, `seconds`.
    costs: dict[str, Estimate] = Field(default_factory=dict)
    by_group: list[Breakdown] = Field(default_factory=list)
    by_difficulty: list[Breakdown] = Field(default_factory=list)
    per_task: dict[str, TaskResult] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)  # samples that were left out, and caveats

    @property
    def has_unknown_rewards(self) -> bool:
        """True if the reward of a given-up sample is unknown, so that rewards have no mean."""
        return any(map(_is_of_unknown_worth, _samples(self.per_task)))

    def scores(self) -> dict[str, Any]:
        """Return the figures by name, for experiment trackers, and the figures of each task.

        The names are those of RFC 013. A figure that no sample has is None.
        """
        return {
            "success_rate": self.success.value,
            "success_rate_stderr": self.success.stderr,
            "mean_reward": self.mean_reward.value,
            "mean_reward_stderr": self.mean_reward.stderr,
            "median_reward": self.median_reward,
            "mean_turns": self.costs["steps"].value,
            "mean_completion_tokens": self.costs["completion_tokens"].value,
            "mean_prompt_tokens": self.costs["prompt_tokens"].value,
            "mean_seconds": self.costs["seconds"].value,
            **{f"pass@{k}": estimate.value for k, estimate in self.pass_at_k.items()},
            **{f"component/{name}": part.value for name, part in self.components.items()},
            **{f"{name}_rate": rate.value for name, rate in self.rates.items()},
            "reproducible": self.reproducible,
            "by_group": {part.name: part.success.value for part in self.by_group},
            "by_difficulty": {part.name: part.success.value for part in self.by_difficulty},
            "per_task": {
                name: {"success": task.success, "reward": task.reward}
                for name, task in self.per_task.items()
            },
        }


def evaluate(
    rollouts: Iterable[Rollout],
    header: RolloutHeader | None = None,
    *,
    threshold: float | None = None,
    unscored: Unscored = "fail",
    lowest: float | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    reproducible: bool | None = None,
) -> Evaluation:
    """Evaluate a run.

    Rates and means are over samples; `pass_at_k` is the mean over tasks. Rates have Wilson
    intervals for the number of independent samples. Other intervals are from a bootstrap that draws
    tasks with all of their samples, or Student's intervals if there are too few tasks for a
    bootstrap (see `openenv.evals.statistics`).

    Args:
        rollouts: The rollouts of the run in any order; read once, one at a time.
        header: The header of the run, which has the meaning of rewards.
        threshold: Minimum reward of a solved sample. By default the highest reward that the
            environment declares, or 1 if it declares none.
        unscored: The treatment of samples without a known reward; see `Unscored`.
        lowest: Reward of samples that the policy gave up. By default the `unfinished` reward that
            the episode or the environment declares, or else the lowest declared reward, at most 0.
            If nothing is declared and there are such samples, there is no mean of rewards, and a
            note says why.
        level: Confidence level of the intervals, between 0 and 1.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
        reproducible: Result of `check_reproducible`; None if unknown.

    Raises:
        EvaluationError: There are no rollouts, two rollouts have the same id, or a reward or a
            difficulty is not a finite number.
        MissingPackage: The extra ``eval`` is not installed.
        ValueError: An argument is out of range.
    """
    if unscored not in get_args(Unscored):
        raise ValueError(f"unscored={unscored!r}; expected 'fail', 'skip' or 'fail-all'")
    if not 0.0 < level < 1.0 or resamples < 1:
        raise ValueError(f"level={level}, resamples={resamples}; expected 0 < level < 1, and one")
    header = header or RolloutHeader(environment="", policy="")
    limit, limit_from = _threshold(threshold, header.reward)
    worst = _lowest(lowest, header.reward)
    rules = _Rules(limit, unscored, worst, lowest is not None)
    per_task = _by_task(rollouts, rules)
    work = _Estimator(per_task, level, resamples, seed)
    parts = _components(per_task, header.reward)
    # All figures share the resamples, because drawing tasks takes most of the time.
    means = work.means(["reward", *COSTS, *parts])
    evaluation = Evaluation(
        environment=header.environment,
        policy=header.policy,
        reward=header.reward,
        threshold=limit,
        threshold_from=limit_from,
        unscored_policy=unscored,
        lowest=worst,
        level=level,
        resamples=resamples,
        seed=seed,
        reproducible=reproducible,
        settings=header.settings,
        started_at=header.started_at,
        counts=_counts(per_task),
        success=work.rate(_is_solved),
        pass_at_k=work.pass_at_k(),
        mean_reward=means["reward"],
        median_reward=None if means["reward"].value is None else _median(per_task),
        components={name.partition("/")[2]: means[name] for name in parts},
        rates={name: work.rate(is_one) for name, is_one in RATES.items()},
        costs={name: means[name] for name in COSTS},
        by_group=work.broken_down(_families(per_task)),
        by_difficulty=work.broken_down(_difficulties(per_task)),
        per_task=per_task,
    )
    evaluation.notes = [*_notes_on_rewards(evaluation), *_notes_on_tasks(evaluation)]
    return evaluation


def _threshold(given: float | None, reward: Mapping[str, Any] | None) -> tuple[float, str]:
    if given is not None:
        if not math.isfinite(given):
            raise ValueError(f"threshold={given}; expected a finite number")
        return float(given), ASKED
    declared = None if reward is None else RewardSpec.from_data(reward).range
    if declared is None:
        return 1.0, "no range of rewards is declared"
    return declared[1], "the highest reward that is declared"


def _lowest(given: float | None, reward: Mapping[str, Any] | None) -> float | None:
    if given is None:
        return lowest_of(None if reward is None else RewardSpec.from_data(reward))
    if not math.isfinite(given):
        raise ValueError(f"lowest={given}; expected a finite number")
    return float(given)


# ------------------------------------------------------------------ samples and tasks


class _Rules(NamedTuple):
    """Rules for turning rollouts into sample results; see `evaluate`."""

    threshold: float
    unscored: Unscored
    lowest: float | None
    is_lowest_given: bool

    def worst(self, rollout: Rollout) -> float | None:
        """Return the reward that a rollout counts as if the policy gave it up; None if unknown."""
        if self.is_lowest_given:
            return self.lowest
        if rollout.reward_unfinished is not None:
            return rollout.reward_unfinished
        if rollout.reward_range is None:
            return self.lowest
        return min(0.0, rollout.reward_range[0])

    def cost(self, rollout: Rollout) -> float:
        """Return the penalty of a scored rollout that the policy left early; 0 for others."""
        is_counted = self.unscored != "skip" and rollout.is_scored and is_left(rollout)
        return (rollout.reward_unfinished or 0.0) if is_counted else 0.0


def figure_of(sample: SampleResult, figure: str) -> float | None:
    """Return ``reward``, ``solved``, a cost or ``component/NAME`` of a sample; None without it."""
    kind, _, name = figure.partition("/")
    if kind in COSTS:
        # The cost of a failed attempt is not the cost of a sample.
        return None if sample.outcome == "failed" else float(getattr(sample, kind))
    if kind == "solved":
        return None if sample.solved is None else float(sample.solved)
    return sample.reward if kind == "reward" else sample.components.get(name)


COSTS = ("steps", "prompt_tokens", "completion_tokens", "seconds")


def _by_task(rollouts: Iterable[Rollout], rules: _Rules) -> dict[str, TaskResult]:
    found: dict[str, TaskResult] = {}
    ids: set[str] = set()
    for rollout in rollouts:
        if rollout.id in ids:
            raise EvaluationError(f"two rollouts have the id {rollout.id!r}: each counts once")
        ids.add(rollout.id)
        name = rollout.task_id or rollout.group or rollout.id
        group = (rollout.task or {}).get("group")
        task = TaskResult(
            group=None if group is None else str(group), difficulty=_difficulty(rollout, name)
        )
        result = found.setdefault(name, task)
        result.samples.append(_sample(rollout, rules))
    if not found:
        raise EvaluationError("there are no rollouts to evaluate")
    # The order in which rollouts ended must not matter, but the bootstrap draws by position.
    for result in found.values():
        result.samples.sort(key=lambda sample: (_as_read(sample.group), sample.sample, sample.id))
    return {name: found[name] for name in sorted(found, key=_as_read)}


def _as_read(name: str) -> list[str | int]:
    """Return a sort key in natural order: 2 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _difficulty(rollout: Rollout, name: str) -> float | None:
    difficulty = (rollout.task or {}).get("difficulty")
    if difficulty is None:
        return None
    if isinstance(difficulty, bool) or not isinstance(difficulty, int | float):
        raise EvaluationError(f"task {name!r}: difficulty={difficulty!r}; expected a number")
    return float(difficulty)


def _sample(rollout: Rollout, rules: _Rules) -> SampleResult:
    scored = rollout.is_scored
    if rollout.reward is not None and not math.isfinite(rollout.reward):
        raise EvaluationError(f"rollout {rollout.id!r}: its reward is {rollout.reward}")
    given_up = rules.unscored != "skip" and is_given_up(rollout)
    cost = rules.cost(rollout)
    solved = False if given_up or rules.unscored == "fail-all" else None
    reward = rules.worst(rollout) if given_up else None
    if scored:
        assert rollout.reward is not None
        reward = rollout.reward + cost
        is_close = math.isclose(reward, rules.threshold, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        solved = reward >= rules.threshold or is_close
    return SampleResult(
        id=rollout.id,
        sample=rollout.sample,
        seed=rollout.seed,
        group=rollout.group,
        reward=reward,
        components=rollout.components if scored else {},
        solved=solved,
        given_up=given_up,
        cost=cost,
        outcome=rollout.outcome,
        unscored=None if scored else _why(rollout),
        steps=len(rollout.steps),
        prompt_tokens=rollout.usage.prompt_tokens,
        completion_tokens=rollout.usage.completion_tokens,
        seconds=rollout.usage.seconds,
    )


def _why(rollout: Rollout) -> str:
    if rollout.outcome == "failed":
        last = rollout.failures[-1] if rollout.failures else None
        return "it failed" if last is None else f"{last.at}: {last.type}: {last.message}"
    return rollout.unscored or "it has no reward"


def _counts(per_task: Mapping[str, TaskResult]) -> dict[str, int]:
    samples = _samples(per_task)
    outcomes = Counter(sample.outcome for sample in samples)
    return {
        "tasks": len(per_task),
        "samples": len(samples),
        "scored": sum(sample.is_scored for sample in samples),
        "unscored": sum(_is_unscored(sample) for sample in samples),
        "given_up": sum(sample.given_up for sample in samples),
        **{name: outcomes[name] for name in ("failed", "done", "truncated", "limit")},
    }


def _samples(per_task: Mapping[str, TaskResult]) -> list[SampleResult]:
    return [sample for task in per_task.values() for sample in task.samples]


def _is_unscored(sample: SampleResult) -> bool:
    return sample.outcome != "failed" and not sample.is_scored


def _is_of_unknown_worth(sample: SampleResult) -> bool:
    """Return whether a sample was given up without a known lowest reward."""
    return sample.given_up and sample.reward is None


def _components(per_task: Mapping[str, TaskResult], reward: Mapping[str, Any] | None) -> list[str]:
    declared = () if reward is None else RewardSpec.from_data(reward).components
    seen = {name: None for sample in _samples(per_task) for name in sample.components}
    in_order = [*(name for name in declared if name in seen), *seen]
    return [f"component/{name}" for name in dict.fromkeys(in_order)]


# ------------------------------------------------------------------ figures


class SampleCount(NamedTuple):
    """Samples that have a property, and samples that could have the property."""

    has: int
    of: int


def _is_solved(sample: SampleResult) -> bool | None:
    return sample.solved


RATES: dict[str, Callable[[SampleResult], bool | None]] = {
    "error": lambda sample: sample.outcome == "failed",
    "unscored": _is_unscored,
    "truncation": lambda sample: sample.outcome == "truncated",
    "limit": lambda sample: sample.outcome == "limit",
    "given_up": lambda sample: sample.given_up,
}


@dataclass
class _Estimator:
    tasks: Mapping[str, TaskResult]
    level: float
    resamples: int
    seed: int

    def rate(self, is_one: Callable[[SampleResult], bool | None]) -> Estimate:
        """Return the share of samples with a property, without None, and its Wilson interval."""
        import numpy as np

        from openenv.evals.statistics import rate_interval, ratio_stderr

        told = [list(map(is_one, task.samples)) for task in self.tasks.values()]
        known = [[one for one in of if one is not None] for of in told]
        tallies = [SampleCount(sum(of), len(of)) for of in known if of]
        if not tallies:
            return Estimate(value=None)
        has, of = np.array(tallies, dtype=np.float64).T
        low, high = rate_interval(has, of, self.level)
        return Estimate(
            value=float(has.sum() / of.sum()),
            low=low,
            high=high,
            stderr=_finite(ratio_stderr(has, of)),
            method="wilson",
            samples=int(of.sum()),
            tasks=len(tallies),
        )

    def means(self, figures: Sequence[str]) -> dict[str, Estimate]:
        rows = [
            [_total([figure_of(sample, figure) for sample in task.samples]) for figure in figures]
            for task in self.tasks.values()
        ]
        found = dict(zip(figures, self._bootstrapped(rows, len(figures)), strict=True))
        if any(map(_is_of_unknown_worth, _samples(self.tasks))):
            found["reward"] = Estimate(value=None)
        return found

    def pass_at_k(self) -> dict[int, Estimate]:
        """Return the probability that at least one of k samples is solved, as a mean over tasks."""
        groups = [_groups(task) for task in self.tasks.values()]
        most = max(tally.of for tallies in groups for tally in tallies)
        ks = [k for k in range(1, most + 1) if k <= EACH_K_UP_TO or k == most or not k & (k - 1)]
        rows = [[_passes(tallies, k) for k in ks] for tallies in groups]
        estimates = dict(zip(ks, self._bootstrapped(rows, len(ks)), strict=True))
        for k, estimate in estimates.items():
            estimate.samples = sum(t.of for tallies in groups for t in tallies if t.of >= k)
            self._mend_chance(estimate)
        return estimates

    def broken_down(self, parts: Mapping[str, Sequence[str]]) -> list[Breakdown]:
        found = []
        for name, tasks in parts.items():
            part = {task: self.tasks[task] for task in tasks}
            work = _Estimator(part, self.level, self.resamples, self.seed)
            found.append(
                Breakdown(
                    name=name,
                    tasks=len(part),
                    samples=len(_samples(part)),
                    success=work.rate(_is_solved),
                    reward=work.means(["reward"])["reward"],
                )
            )
        return found

    def _bootstrapped(self, rows: list[list[tuple[float, int]]], columns: int) -> list[Estimate]:
        import numpy as np

        from openenv.evals.statistics import are_few, bootstrap_intervals, ratio_stderr

        if not columns:
            return []
        both = np.array(rows, dtype=np.float64).reshape(len(rows), columns, 2)
        sums, counts = both[:, :, 0], both[:, :, 1]
        intervals = bootstrap_intervals(
            sums, counts, level=self.level, resamples=self.resamples, seed=self.seed
        )
        found = []
        for place, interval in enumerate(intervals):
            has, of = sums[:, place], counts[:, place]
            seen = of > 0
            low, high = interval or (None, None)
            method: Method = "student" if are_few(int(seen.sum()), self.level) else "bootstrap"
            found.append(
                Estimate(
                    value=float(has.sum() / of.sum()) if seen.any() else None,
                    low=low,
                    high=high,
                    stderr=_finite(ratio_stderr(has[seen], of[seen])),
                    method=None if interval is None else method,
                    samples=int(of.sum()),
                    tasks=int(seen.sum()),
                )
            )
        return found

    def _mend_chance(self, estimate: Estimate) -> None:
        """Clip the interval of a probability to [0, 1]; add an interval to a value of 0 or 1."""
        from openenv.evals.statistics import wilson

        if estimate.low is not None and estimate.high is not None:
            estimate.low, estimate.high = max(0.0, estimate.low), min(1.0, estimate.high)
        # If all tasks are at 0, or all at 1, resampling gives no interval, but the task count does.
        if estimate.value in (0.0, 1.0) and estimate.low is None and estimate.tasks > 1:
            estimate.low, estimate.high = wilson(estimate.value, estimate.tasks, self.level)
            estimate.method = "wilson"


def _groups(task: TaskResult) -> list[SampleCount]:
    """Return the numbers of solved and counted samples per seed; each seed is its own problem."""
    counted: Counter[str] = Counter()
    solved: Counter[str] = Counter()
    for sample in task.samples:
        counted[sample.group] += sample.solved is not None
        solved[sample.group] += sample.solved is True
    return [SampleCount(solved[group], counted[group]) for group in counted]


def _passes(groups: Sequence[SampleCount], k: int) -> tuple[float, int]:
    """Return the mean of pass@k over the seeds with at least k samples, and the count 1.

    Without such seeds both are 0.
    """
    from openenv.evals.statistics import pass_at_k

    chances = [pass_at_k(tally.of, tally.has, k) for tally in groups if tally.of >= k]
    return (math.fsum(chances) / len(chances), 1) if chances else (0.0, 0)


def _total(figures: Sequence[float | None]) -> tuple[float, int]:
    known = [figure for figure in figures if figure is not None]
    return math.fsum(known), len(known)


def _mean(figures: Sequence[float | None]) -> float | None:
    total, count = _total(figures)
    return total / count if count else None


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _median(per_task: Mapping[str, TaskResult]) -> float | None:
    known = [sample.reward for sample in _samples(per_task) if sample.reward is not None]
    return statistics.median(known) if known else None


# ------------------------------------------------------------------ parts of the tasks


def _families(per_task: Mapping[str, TaskResult]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, task in per_task.items():
        if task.group is not None:
            found.setdefault(task.group, []).append(name)
    return dict(sorted(found.items()))


def _difficulties(per_task: Mapping[str, TaskResult]) -> dict[str, list[str]]:
    by_value: dict[float, list[str]] = {}
    for name, task in per_task.items():
        if task.difficulty is not None:
            by_value.setdefault(task.difficulty, []).append(name)
    values = sorted(by_value)
    if len(values) <= DIFFICULTIES:
        return {f"{value:g}": by_value[value] for value in values}
    # Neighboring difficulties are merged into parts of about the same number of tasks.
    share = sum(map(len, by_value.values())) / PARTS
    parts: dict[int, list[float]] = {}
    before = 0
    for value in values:
        parts.setdefault(int(before / share), []).append(value)
        before += len(by_value[value])
    return {
        " to ".join(f"{value:g}" for value in dict.fromkeys((part[0], part[-1]))): [
            name for value in part for name in by_value[value]
        ]
        for part in parts.values()
    }


# ------------------------------------------------------------------ notes


def _notes_on_rewards(evaluation: Evaluation) -> Iterator[str]:
    samples = _samples(evaluation.per_task)
    if given_up := [one for one in samples if one.given_up]:
        found = (
            f"{len(given_up):,} of {len(samples):,} samples were given up by the policy, and have "
            "no reward of their own: they count as not solved"
        )
        if evaluation.has_unknown_rewards:
            yield (
                f"{found}. What they are worth is not known, so no mean of rewards is given: "
                "declare the range of rewards on the environment (REWARD = RewardSpec(kind, "
                "range=(low, high))), or give the lowest one (--lowest -1); --unscored skip leaves "
                "these samples out."
            )
        else:
            yield f"{found}, and as a reward of {_either(one.reward or 0.0 for one in given_up)}."
    if left := [one.cost for one in samples if one.cost]:
        yield (
            f"{len(left):,} of {len(samples):,} samples were left by the policy before their end: "
            f"beside what they have earned they count what giving up costs, {_either(left)}."
        )
    if left_out := [one for one in samples if not (one.is_scored or one.given_up)]:
        failed = sum(one.outcome == "failed" for one in left_out)
        what = (
            "count as not solved, as asked for, and are left out of means of rewards"
            if evaluation.unscored_policy == "fail-all"
            else "are left out of every figure of rewards, and count as 0 in none"
        )
        yield (
            f"{len(left_out):,} of {len(samples):,} samples have no known reward: {failed:,} "
            f"failed, {len(left_out) - failed:,} could not be scored. They {what}."
        )
    yield from _reasons("Why samples could not be scored", filter(_is_unscored, samples))
    yield from _reasons("Why samples failed", filter(RATES["error"], samples))


def _either(numbers: Iterable[float]) -> str:
    return " or ".join(f"{one:g}" for one in sorted(set(numbers))[:3])


def _reasons(what: str, samples: Iterable[SampleResult]) -> Iterator[str]:
    reasons = Counter(sample.unscored or "" for sample in samples)
    common = reasons.most_common(NAMED_IN_A_NOTE)
    named = "; ".join(f"{reason:.200} ({count:,})" for reason, count in common)
    more = len(reasons) - len(common)
    if named:
        yield f"{what}: {named}{f'; and {more:,} other reasons' if more else ''}."


def _notes_on_tasks(evaluation: Evaluation) -> Iterator[str]:
    is_per_step = (evaluation.reward or {}).get("kind") == "per_step"
    if is_per_step and evaluation.threshold_from != ASKED:
        yield (
            f"A sample is solved from {evaluation.threshold:g} on ({evaluation.threshold_from}), "
            "but rewards are of single steps here and a sample's is their sum: give the threshold, "
            "unless that is the sum of an episode that is solved."
        )
    tasks = evaluation.counts["tasks"]
    short = {k: one.tasks for k, one in evaluation.pass_at_k.items() if one.tasks < tasks}
    if short:
        named = ", ".join(f"pass@{k} of {count:,}" for k, count in short.items())
        yield f"Not every one of the {tasks:,} tasks has as many counted samples: {named}."
    if tasks <= 1:
        yield "There is one task only: intervals of rates are of more samples of it, not of others."
    if evaluation.reproducible is False:
        yield (
            "Two fresh sessions that were reset with the same task and seed did not show the same: "
            "another run may see other tasks, and a comparison may be of these."
        )
