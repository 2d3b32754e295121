"""The catalog of checks by property of RFC 008, and the scores of an environment.

A score is the weight of the passed checks as a percentage of the weight of all checks in the run. A
skipped check counts as not passed. A check whose failure fails a package has the weight 3, others
have 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from openenv.validation.policy import SeverityPolicy
from openenv.validation.report import CheckResult
from openenv.validation.types import CheckStatus, Severity


class Property(str, Enum):
    """The six properties of RFC 008 that make an environment fit to train in."""

    SCALES = "scales"
    LEARNABLE = "learnable"
    SECURE = "secure"
    NOT_HACKABLE = "not hackable"
    OBSERVABLE = "observable"
    REPRODUCIBLE = "reproducible"


class CheckInfo(NamedTuple):
    """The description of a check."""

    # The property that the check belongs to; None for a third-party check.
    property: Property | None
    question: str  # the question that the check answers


_SCALES = {
    "static.image_hygiene": "Does its image hold only what it runs?",
    "static.layout": "Are its files what they seem, and all there?",
    "static.sbom": "Is it known what is installed in its image?",
    "static.oci_labels": "Does its image say what it is?",
    "static.resource_declaration": "Does it say what it needs?",
    "static.timeout_ceiling": "Do its episodes end in time?",
    "runtime.startup": "Does it start and answer?",
    "runtime.latency": "Does it answer quickly under load?",
    "runtime.memory": "Does its memory stay where it is under load?",
    "semantic.resource_envelope": "Does it keep to what it said it needs?",
}
_LEARNABLE = {
    "semantic.monotonicity": "Is more of the solution worth more than less of it?",
    "learning.curve": "Does a small learner get better in it?",
    "learning.group_signal": "Do samples of one task differ in reward?",
}
_SECURE = {
    "runtime.network_policy": "Does it reach what it declares, and no more?",
    "runtime.host_containment": "Is the machine out of its reach?",
    "runtime.resource_bounds": "Is an episode that takes too much ended?",
    "runtime.episode_isolation": "Does nothing of one episode reach the next?",
    "runtime.session_isolation": "Does nothing of one session reach another?",
    "runtime.oracle_containment": "Is the solution out of the agent's reach?",
}
_NOT_HACKABLE = {
    "runtime.reward_well_formed": "Is every reward a number in its range?",
    "runtime.reward_contract": "Do rewards mean what it says they do?",
    "runtime.rubric_introspectable": "Can it be seen what its reward is made of?",
    "semantic.oracle_max": "Does the solution get the highest reward?",
    "semantic.floor_gap": "Does doing nothing get much less?",
    "semantic.canary_floor": "Do known tricks get nothing?",
    "semantic.hacking_probes": "Do empty, long and scheming actions get nothing?",
}
_OBSERVABLE = {
    "static.manifest": "Does it say what it is, in full?",
    "runtime.observation_schema": "Are its observations as its schema says?",
    "runtime.state_contract": "Does its state name the episode and count steps?",
    "runtime.trajectory_record": "Does it record what was done?",
    "runtime.reward_attribution": "Is it told what each reward is for?",
    "runtime.tool_declaration_accuracy": "Has it the tools that it declares?",
    "runtime.task_declaration_accuracy": "Has it the tasks that it declares?",
    "semantic.no_solution_leakage": "Do its observations keep the solution to themselves?",
}
_REPRODUCIBLE = {
    "static.reproducible_build": "Do two builds give the same image?",
    "static.dependency_pinning": "Is it fixed what it installs?",
    "static.task_distribution_pinning": "Is it fixed which tasks there are?",
    "runtime.seed_control": "Does its seed decide what happens?",
    "runtime.episode_determinism": "Does the same episode go the same way again?",
    "semantic.verifier_determinism": "Is the same solution worth the same again?",
    "semantic.verifier_portability": "Is it worth the same without a network?",
    "semantic.replayability": "Can what was recorded be played again?",
}

CHECKS: dict[str, CheckInfo] = {
    check_id: CheckInfo(which, question)
    for which, questions in (
        (Property.SCALES, _SCALES),
        (Property.LEARNABLE, _LEARNABLE),
        (Property.SECURE, _SECURE),
        (Property.NOT_HACKABLE, _NOT_HACKABLE),
        (Property.OBSERVABLE, _OBSERVABLE),
        (Property.REPRODUCIBLE, _REPRODUCIBLE),
    )
    for check_id, question in questions.items()
}
"""Every check that can run on an author's machine."""


def describe_check(check_id: str) -> CheckInfo:
    """Return the description of a check, or a generic description for a third-party check."""
    return CHECKS.get(check_id, CheckInfo(None, "A check of another package."))


# ------------------------------------------------------------------ scores

WEIGHTS = {Severity.FAIL: 3, Severity.WARN: 1, Severity.ADVISORY: 1}


@dataclass(frozen=True)
class PropertyScore:
    """The score of a property."""

    property: Property
    value: float | None  # from 0 to 100; None if the run has no checks of the property
    counts: dict[CheckStatus, int]  # the number of checks by status


@dataclass(frozen=True)
class Scores:
    """The scores of an environment."""

    total: float  # the mean of the properties with a score, from 0 to 100
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
