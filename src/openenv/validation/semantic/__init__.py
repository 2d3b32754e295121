"""The semantic level: whether the reward means what it claims (RFC 008, level 3)."""

from __future__ import annotations

from collections.abc import Sequence

from openenv.validation.graders import Check, Grader, Subject
from openenv.validation.judging import DETERMINISM, STARTUP, judged
from openenv.validation.report import CheckResult, failed
from openenv.validation.semantic.collecting import collect_semantic
from openenv.validation.semantic.judges import (
    judge_canary_floor,
    judge_floor_gap,
    judge_hacking_probes,
    judge_monotonicity,
    judge_no_solution_leakage,
    judge_oracle_max,
    judge_replayability,
    judge_resource_envelope,
    judge_verifier_determinism,
    judge_verifier_portability,
)
from openenv.validation.semantic.seen import Canaries, Floor, Hacks, NoOracle, Solutions
from openenv.validation.types import Level

__all__ = ["collect_semantic", "semantic_checks"]

ORACLE = "semantic.oracle_max"
VERIFIER = "semantic.verifier_determinism"
SAME = (STARTUP, DETERMINISM)


def semantic_checks() -> Sequence[Grader]:
    """The graders of this level, in the order of RFC 008, ours after them.

    All depend on the determinism of episodes: of an environment that goes another way each time
    they could say nothing.
    """
    repeats = (*SAME, VERIFIER)
    return [
        Check(ORACLE, Level.SEMANTIC, _oracle_max, depends_on=SAME),
        judged("semantic.floor_gap", judge_floor_gap, Floor, depends_on=SAME),
        judged("semantic.canary_floor", judge_canary_floor, Canaries, Floor, depends_on=SAME),
        judged(
            "semantic.no_solution_leakage", judge_no_solution_leakage, Solutions, depends_on=SAME
        ),
        judged(VERIFIER, judge_verifier_determinism, Solutions, depends_on=SAME),
        judged(
            "semantic.verifier_portability",
            judge_verifier_portability,
            Solutions,
            depends_on=repeats,
        ),
        judged("semantic.replayability", judge_replayability, Solutions, depends_on=repeats),
        judged("semantic.resource_envelope", judge_resource_envelope, Solutions, depends_on=SAME),
        judged("semantic.monotonicity", judge_monotonicity, Solutions, depends_on=repeats),
        judged("semantic.hacking_probes", judge_hacking_probes, Hacks, Floor, depends_on=SAME),
    ]


def _oracle_max(subject: Subject) -> CheckResult:
    """An environment without an oracle fails: it is only good if it can be verified."""
    none = subject.evidence.get(NoOracle)
    if none is None:
        return judged(ORACLE, judge_oracle_max, Solutions).run(subject)
    mend = (
        "mend the file that validation.capabilities.oracle names"
        if none.is_declared
        else "bring a correct solution: validation.capabilities.oracle: {form: script, location: "
        "validation/oracle.py} (see openenv.validation.oracle)"
    )
    return failed(ORACLE, none.reason, remediation=mend)
