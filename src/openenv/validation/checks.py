"""The catalog of checks, with the questions that they answer and the properties of RFC 008."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


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

    # The property that the check supports; None for a third party's check.
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
    """Return the description of a check, or a general description for a third party's check."""
    return CHECKS.get(check_id, CheckInfo(None, "A check of another package."))
