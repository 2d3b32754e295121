"""Counts and means of a run, updated as rollouts end."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from openenv.rollouts.endings import is_given_up
from openenv.rollouts.records import Rollout


@dataclass(frozen=True)
class RolloutProgress:
    """The progress of a run.

    Attributes:
        done: Number of rollouts that have ended, including those of an earlier run.
        total: Number of rollouts to play; None if unknown.
        failed: Number of failed rollouts.
        mean_reward: The mean reward of scored rollouts; None if there are none.
        per_s: Rollouts per second in this run.
        left_s: Expected seconds until the end of the run; None if unknown.
        running: Number of episodes that are being played.
        limit: Current maximum number of episodes at once.
    """

    done: int
    total: int | None
    failed: int
    mean_reward: float | None
    per_s: float
    left_s: float | None
    running: int
    limit: int


@dataclass
class Summary:
    """Counts and means of a run, including the rollouts of earlier runs in the same file.

    Attributes:
        rollouts: Number of rollouts.
        outcomes: Number of rollouts by outcome.
        limits: Number of rollouts ended by each limit.
        scored: Number of rollouts with a reward.
        unscored: Number of rollouts that have not failed but have no reward.
        given_up: Number of rollouts that failed or have no reward because of the policy: it
            stopped, ran into a limit, or raised; see `openenv.rollouts.endings`.
        mean_reward: The mean reward of scored rollouts; None if there are none.
        without_token_rewards: Number of rollouts whose tokens should have rewards but do not; their
            `no_token_rewards` gives the reason.
        failures: Number of failed attempts by the type of error.
        retries: Number of attempts that were retried.
        groups: Number of groups with two or more scored rollouts, as GRPO compares them.
        groups_with_signal: Number of these groups whose rewards are not all equal.
        steps: Number of steps in all episodes.
        model_calls: Number of model calls in all episodes.
        prompt_tokens: Number of prompt tokens in all episodes.
        completion_tokens: Number of completion tokens in all episodes.
        seconds: Duration of this run in seconds.
        steps_per_s: Steps per second in this run.
        pace: Changes of the number of episodes at once: seconds, number, reason.
    """

    rollouts: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    scored: int = 0
    unscored: int = 0
    given_up: int = 0
    mean_reward: float | None = None
    without_token_rewards: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    groups: int = 0
    groups_with_signal: int = 0
    steps: int = 0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    steps_per_s: float = 0.0
    pace: list[tuple[float, int, str]] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Number of failed rollouts."""
        return self.outcomes.get("failed", 0)

    def as_data(self) -> dict[str, Any]:
        """Return the summary as JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class EndedGroup:
    """A group whose samples have all ended.

    Attributes:
        rewards: The reward of each sample in order; None if unknown.
        costs: Number of tokens written for each sample; None if the policy does not report any.
    """

    rewards: list[float | None]
    costs: list[float] | None


@dataclass
class _OpenGroup:
    rewards: dict[int, float | None] = field(default_factory=dict)
    costs: dict[int, float] = field(default_factory=dict)


class Groups:
    """Gathers the rewards of each group until all samples have ended."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._open: dict[str, _OpenGroup] = {}

    def add(self, rollout: Rollout) -> EndedGroup | None:
        """Note the end of a rollout; return the group if this was its last rollout."""
        group = self._open.setdefault(rollout.group, _OpenGroup())
        group.rewards[rollout.sample] = rollout.reward
        group.costs[rollout.sample] = float(rollout.usage.completion_tokens)
        if len(group.rewards) < self._samples:
            return None
        del self._open[rollout.group]
        places = sorted(group.rewards)
        costs = [group.costs[i] for i in places]
        return EndedGroup([group.rewards[i] for i in places], costs if any(costs) else None)


class RolloutTally:
    """Counts rollouts as the episodes end.

    Attributes:
        total: Number of rollouts to play; None if unknown.
    """

    def __init__(self) -> None:
        self.total: int | None = None
        self.causes: Counter[str] = Counter()
        self._summary = Summary()
        self._outcomes: Counter[str] = Counter()
        self._limits: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._failing: set[str] = set()  # the tasks that failed; two are enough
        self._reward = 0.0
        self._began = time.monotonic()
        self._found_steps = self._found = 0

    def begin(self) -> None:
        """Start the clock of this run."""
        self._began = time.monotonic()

    def add(self, rollout: Rollout) -> None:
        """Count a rollout."""
        summary = self._summary
        summary.rollouts += 1
        self._outcomes[rollout.outcome] += 1
        if rollout.limit is not None:
            self._limits[rollout.limit] += 1
        if rollout.is_scored:
            summary.scored += 1
            self._reward += rollout.reward or 0.0
        elif rollout.outcome != "failed":
            summary.unscored += 1
        summary.given_up += is_given_up(rollout)
        summary.without_token_rewards += rollout.no_token_rewards is not None
        for failure in rollout.failures:
            self._failures[failure.type] += 1
            summary.retries += failure.is_retried
        if rollout.outcome == "failed" and rollout.failures:
            last = rollout.failures[-1]
            self.causes[f"{last.type} in {last.at}: {last.message.splitlines()[0][:200]}"] += 1
        if rollout.outcome == "failed" and len(self._failing) < 2:
            self._failing.add(rollout.task_id or rollout.group)
        summary.steps += len(rollout.steps)
        summary.model_calls += rollout.usage.model_calls
        summary.prompt_tokens += rollout.usage.prompt_tokens
        summary.completion_tokens += rollout.usage.completion_tokens

    def add_found(self, rollout: Rollout) -> None:
        """Count a rollout of an earlier run; failed rollouts are played again."""
        if rollout.outcome != "failed":
            self.add(rollout)
            self._found_steps = self._summary.steps
            self._found = self._summary.rollouts

    def note_group(self, rewards: list[float | None]) -> None:
        """Count a group that is complete."""
        known = [reward for reward in rewards if reward is not None]
        if len(known) > 1:
            self._summary.groups += 1
            self._summary.groups_with_signal += any(one != known[0] for one in known)

    @property
    def failed(self) -> int:
        """Number of failed rollouts."""
        return self._outcomes["failed"]

    @property
    def is_one_task_failing(self) -> bool:
        """True if all failed rollouts are of the same task."""
        return len(self._failing) == 1

    @property
    def ended(self) -> int:
        """Number of rollouts that have ended."""
        return self._summary.rollouts

    def summary(self, pace: list[tuple[float, int, str]]) -> Summary:
        """Return the current summary."""
        summary = self._summary
        summary.outcomes = dict(self._outcomes.most_common())
        summary.limits = dict(self._limits.most_common())
        summary.failures = dict(self._failures.most_common())
        summary.mean_reward = self._mean
        summary.seconds = time.monotonic() - self._began
        summary.steps_per_s = (summary.steps - self._found_steps) / max(summary.seconds, 1e-9)
        summary.pace = pace
        return Summary(**vars(summary))

    @property
    def _mean(self) -> float | None:
        scored = self._summary.scored
        mean = self._reward / scored if scored else None
        return mean if mean is None or math.isfinite(mean) else None

    def progress(self, running: int, limit: int) -> RolloutProgress:
        """Return the current progress."""
        done = self._summary.rollouts
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (done - self._found) / seconds
        left = None
        if self.total is not None and rate:
            left = max(0, self.total - done) / rate
        return RolloutProgress(
            done, self.total, self.failed, self._mean, rate, left, running, limit
        )
