"""The semantic level: checks that the reward means what the package claims (RFC 008, level 3).

`collector.py` shows solutions and hacking attempts to the verifier, and `judges.py` judges the
results. Read `openenv.validation.oracle` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openenv.validation.graders import (
    DETERMINISM,
    STARTUP,
    FunctionGrader,
    Grader,
    Subject,
    make_grader,
)
from openenv.validation.report import Judgment, reject
from openenv.validation.semantic import judges
from openenv.validation.semantic.collector import MissingOracle, collect_semantic
from openenv.validation.types import Level

__all__ = ["collect_semantic", "semantic_checks"]

ORACLE = "semantic.oracle_max"
VERIFIER = "semantic.verifier_determinism"
SAME = (STARTUP, DETERMINISM)


def semantic_checks() -> Sequence[Grader]:
    """Return the graders of this level: those of RFC 008, and then our own.

    All depend on the determinism of episodes, without which comparisons mean nothing.
    """

    def check(check_id: str, judge: Callable[..., Judgment], *others: str) -> Grader:
        return make_grader(check_id, judge, depends_on=(*SAME, *others))

    return [
        FunctionGrader(ORACLE, Level.SEMANTIC, _oracle_max, depends_on=SAME),
        check("semantic.floor_gap", judges.judge_floor_gap),
        check("semantic.canary_floor", judges.judge_canary_floor),
        check("semantic.no_solution_leakage", judges.judge_no_solution_leakage),
        check(VERIFIER, judges.judge_verifier_determinism),
        check("semantic.verifier_portability", judges.judge_verifier_portability, VERIFIER),
        check("semantic.replayability", judges.judge_replayability, VERIFIER),
        check("semantic.resource_envelope", judges.judge_resource_envelope),
        check("semantic.monotonicity", judges.judge_monotonicity, VERIFIER),
        check("semantic.hacking_probes", judges.judge_hacking_probes),
    ]


def _oracle_max(subject: Subject) -> Judgment:
    """Judge the solutions. Without an oracle the check fails, because the reward is unverified."""
    none = subject.evidence.get(MissingOracle)
    if none is None:
        return make_grader(ORACLE, judges.judge_oracle_max).judge(subject)
    mend = (
        "mend the file that validation.capabilities.oracle names"
        if none.is_declared
        else "bring a correct solution: validation.capabilities.oracle: {form: script, location: "
        "validation/oracle.py} (see openenv.validation.oracle)"
    )
    return reject(none.reason, remediation=mend)
