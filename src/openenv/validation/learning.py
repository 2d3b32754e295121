"""The learning level, for ``--learn``: checks that a small learner improves in the environment.

`openenv.validation.learner` trains in the subject; this module judges the results.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openenv.client.background import run as run_async
from openenv.errors import OpenEnvError
from openenv.validation.context import Startup, ValidationRun
from openenv.validation.evidence import episode_reward
from openenv.validation.graders import STARTUP, Grader, make_grader
from openenv.validation.learner import (
    Candidates,
    LearningReport,
    LearningSettings,
    learn,
    schema_candidates,
)
from openenv.validation.manifest import AnyManifest
from openenv.validation.oracle import Oracle, OracleError, read_oracle
from openenv.validation.report import Judgment, accept, reject, skip
from openenv.validation.runtime.evidence import ServerSurface
from openenv.validation.semantic.collector import FloorEpisodes, ShownSolutions

__all__ = ["collect_learning", "learning_checks"]

SIGNAL = "learning.group_signal"

MIN_SHARE_WITH_SIGNAL = 0.05
"""Minimum share of groups of 8 samples whose rewards differ, before or during training. GRPO learns
nothing from other groups.
"""


def learning_checks() -> Sequence[Grader]:
    """Return the graders of this level. The curve is judged only if enough groups have signal."""
    return [
        make_grader(SIGNAL, judge_group_signal),
        make_grader("learning.curve", judge_curve, depends_on=(STARTUP, SIGNAL)),
    ]


@dataclass(frozen=True)
class ReferenceRewards:
    """Rewards to compare with a learner's rewards."""

    oracle: float | None = None  # the lowest reward of a solution; None if unknown
    floor: float | None = None  # the highest reward of doing nothing; None if unknown


def collect_learning(run: ValidationRun) -> None:
    """Train a learner and record the result as evidence; needs the runtime level's evidence."""
    startup, surface = run.evidence.get(Startup), run.evidence.get(ServerSurface)
    if startup is None or not startup.is_running or surface is None:
        return
    run.evidence.put(_references(run))
    try:
        with _read_oracle(run, surface) or contextlib.nullcontext() as oracle:
            run.evidence.put(_run_learner(run, surface, oracle))
    except (OpenEnvError, ValueError) as error:
        run.evidence.note_missing(f"the learner could not play: {error}", LearningReport)


def _read_oracle(run: ValidationRun, surface: ServerSurface) -> Oracle | None:
    """Return the package's oracle, which may hold settings for the learner, or None."""
    declared = run.manifest.capabilities.oracle
    try:
        return None if declared is None else read_oracle(declared, run.root, surface.plan)
    except OracleError:
        return None  # `semantic.oracle_max` reports the error


def _run_learner(
    run: ValidationRun, surface: ServerSurface, oracle: Oracle | None
) -> LearningReport:
    base = LearningSettings()
    settings = LearningSettings.of(
        oracle.learning if oracle is not None else {},
        reset=surface.plan.options,
        iterations=max(1, run.options.learning_episodes // (base.groups * base.samples)),
        seconds=run.options.timeout_s,
    )
    candidates: Candidates = schema_candidates(surface.action_space, run.options.seed)
    if oracle is not None and oracle.has_function("candidates"):
        assert oracle.program is not None
        candidates = oracle.program.policy("candidates")  # type: ignore[assignment]
    run.tell(f"letting {settings.seeds} small learners practise")

    def tell(done: int, total: int) -> None:
        run.tell(f"learning: {done} of {total} updates")

    url = run.running.base_url
    return run_async(learn(url, candidates, settings, seed=run.options.seed, tell=tell))


def _references(run: ValidationRun) -> ReferenceRewards:
    solutions, floor = run.evidence.get(ShownSolutions), run.evidence.get(FloorEpisodes)
    shown = (
        [episode_reward(one.transcript, one.spec) for one in solutions.shown] if solutions else []
    )
    idle = [episode_reward(one, floor.spec) for one in floor.transcripts] if floor else []
    return ReferenceRewards(
        min((value for value in shown if value is not None), default=None),
        max((value for value in idle if value is not None), default=None),
    )


def judge_group_signal(manifest: AnyManifest, report: LearningReport) -> Judgment:
    """Check that rewards differ between samples of a task and seed often enough to learn from."""
    if report.unscored == report.episodes:
        return skip("no episode was scored, so there is nothing to compare")
    first = report.first_groups_with_signal / max(1, report.first_groups)
    measured = {
        "share": round(first, 4),
        "groups": report.first_groups,
        "share_while_learning": round(report.share_with_signal, 4),
        "groups_while_learning": report.groups,
    }
    if max(first, report.share_with_signal) < MIN_SHARE_WITH_SIGNAL:
        return reject(
            f"of {report.first_groups} groups of random samples, {first:.0%} differ in reward",
            remediation="reward parts of the way, or bring easier tasks: what fails always, or "
            "succeeds always, teaches nothing",
            **measured,
        )
    return accept(f"{first:.0%} of the first groups differ in reward", **measured)


def judge_curve(
    manifest: AnyManifest, report: LearningReport, references: ReferenceRewards
) -> Judgment:
    """Check that the learner beats a random policy, with a confidence interval above 0."""
    low, high = report.interval
    measured = _measured(report, references)
    words = (
        f"{_mean(report.before):.3g} at random, {_mean(report.after):.3g} after learning: "
        f"{report.improvement:+.3g} ({low:+.3g} to {high:+.3g} at 95 %, p = {report.p_value:.2g})"
    )
    if report.is_learnable:
        return accept(words, **measured)
    if report.stopped is not None:
        return skip(f"it was stopped {report.stopped}: {words}", **measured)
    return reject(
        words,
        remediation="see that the reward depends on what the agent does, and that the observation "
        "shows what it depends on; or give the learner better candidates (LEARNING and "
        "candidates(view) in the oracle's file)",
        **measured,
    )


def _measured(report: LearningReport, references: ReferenceRewards) -> dict[str, Any]:
    curve = report.curve
    return {
        "improvement": _number(report.improvement),
        "interval": [_number(value) for value in report.interval],
        "p_value": _number(report.p_value),
        "learners": len(report.after),
        "episodes": report.episodes,
        "unscored": report.unscored,
        "seconds": round(report.seconds, 1),
        "curve": {
            "episodes": list(curve.episodes),
            "learner": [_number(value) for value in curve.mean],
            "low": [_number(value) for value in curve.low],
            "high": [_number(value) for value in curve.high],
            "random": [_number(_mean(report.before))] * len(curve.episodes),
            "oracle": references.oracle,
            "floor": references.floor,
        },
    }


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def _number(value: float) -> float | None:
    """Return the number if it is finite, which JSON requires, else None."""
    return value if math.isfinite(value) else None
