"""Scores of an environment: a score for each property, and a total.

A score is the percentage of what has been shown: the weight of the checks that passed, of the
weight of all that were asked. A skipped check earns nothing. A check whose failure fails a package
weighs 3, any other 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from openenv.validation.checks import Property, describe_check
from openenv.validation.policy import SeverityPolicy
from openenv.validation.report import CheckResult
from openenv.validation.types import CheckStatus, Severity

WEIGHTS = {Severity.FAIL: 3, Severity.WARN: 1, Severity.ADVISORY: 1}


@dataclass(frozen=True)
class PropertyScore:
    """The score of a property."""

    property: Property
    value: float | None  # from 0 to 100; None if no check was asked
    counts: dict[CheckStatus, int]  # the number of checks by status


@dataclass(frozen=True)
class Scores:
    """The scores of an environment."""

    total: float  # the mean of the properties that were asked, from 0 to 100
    properties: tuple[PropertyScore, ...]  # the score of each property

    def as_data(self) -> dict[str, object]:
        """Return the scores as JSON data."""
        return {
            "total": self.total,
            "properties": {
                one.property.value: {
                    "score": one.value,
                    **{status.value: one.counts[status] for status in CheckStatus},
                }
                for one in self.properties
            },
        }


def score_results(results: Sequence[CheckResult], policy: SeverityPolicy) -> Scores:
    """Score the results of a run."""
    weights = {entry.check_id: WEIGHTS[entry.severity] for entry in policy.entries}
    properties = []
    for which in Property:
        own = [one for one in results if describe_check(one.check_id).property is which]
        asked = sum(weights.get(one.check_id, 1) for one in own)
        passed = [one for one in own if one.status is CheckStatus.PASS]
        shown = sum(weights.get(one.check_id, 1) for one in passed)
        counts = {status: sum(one.status is status for one in own) for status in CheckStatus}
        value = round(100 * shown / asked, 1) if asked else None
        properties.append(PropertyScore(which, value, counts))
    values = [one.value for one in properties if one.value is not None]
    total = math.fsum(values) / len(values) if values else 0.0
    return Scores(round(total, 1), tuple(properties))
