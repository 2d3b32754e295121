"""Judges of a small learner's results."""

from __future__ import annotations

import math
from typing import Any

from openenv.validation.learner import LearningReport
from openenv.validation.learning.collector import ReferenceRewards
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import Judgment, accept, reject, skip

__all__ = ["MIN_SHARE_WITH_SIGNAL", "judge_curve", "judge_group_signal"]

MIN_SHARE_WITH_SIGNAL = 0.05
"""Of groups of 8 samples, before anything is learned, so many must have rewards that differ: of one
that has not, GRPO learns nothing.
"""


def judge_group_signal(manifest: AnyManifest, report: LearningReport) -> Judgment:
    """Check that samples of the same task and seed differ in reward often enough to learn from."""
    if report.unscored == report.episodes:
        return skip("no episode was scored, so there is nothing to compare")
    first = report.first_groups_with_signal / max(1, report.first_groups)
    measured = {
        "share": round(first, 4),
        "groups": report.first_groups,
        "share_while_learning": round(report.share_with_signal, 4),
        "groups_while_learning": report.groups,
    }
    if first < MIN_SHARE_WITH_SIGNAL and report.share_with_signal < MIN_SHARE_WITH_SIGNAL:
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
    """Check that the learner beats a random policy, by a confidence interval above 0."""
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
    curve, random = report.curve, _mean(report.before)
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
            "random": [_number(random)] * len(curve.episodes),
            "oracle": references.oracle,
            "floor": references.floor,
        },
    }


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def _number(value: float) -> float | None:
    """Return a number that JSON can carry, else None."""
    return value if math.isfinite(value) else None
