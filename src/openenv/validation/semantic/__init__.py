"""The semantic level: does the reward mean what the package claims (RFC 008, level 3)?

`collector.py` shows solutions and tricks to the verifier, `evidence.py` holds the results, and
`judges.py` judges them. Read `openenv.validation.oracle` first.
"""

from __future__ import annotations

from collections.abc import Sequence

from openenv.validation.check_factory import DETERMINISM, STARTUP, make_grader
from openenv.validation.graders import FunctionGrader, Grader, Subject
from openenv.validation.report import Judgment, reject
from openenv.validation.semantic.collector import collect_semantic
from openenv.validation.semantic.evidence import (
    CanaryEpisodes,
    FloorEpisodes,
    HackAttempts,
    MissingOracle,
    ShownSolutions,
)
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
from openenv.validation.types import Level

__all__ = ["collect_semantic", "semantic_checks"]

ORACLE = "semantic.oracle_max"
VERIFIER = "semantic.verifier_determinism"
SAME = (STARTUP, DETERMINISM)


def semantic_checks() -> Sequence[Grader]:
    """Return the graders of this level, those of RFC 008 first, then ours.

    All depend on the determinism of episodes: without it their comparisons mean nothing.
    """
    repeats = (*SAME, VERIFIER)
    return [
        FunctionGrader(ORACLE, Level.SEMANTIC, _oracle_max, depends_on=SAME),
        make_grader("semantic.floor_gap", judge_floor_gap, FloorEpisodes, depends_on=SAME),
        make_grader(
            "semantic.canary_floor",
            judge_canary_floor,
            CanaryEpisodes,
            FloorEpisodes,
            depends_on=SAME,
        ),
        make_grader(
            "semantic.no_solution_leakage",
            judge_no_solution_leakage,
            ShownSolutions,
            depends_on=SAME,
        ),
        make_grader(VERIFIER, judge_verifier_determinism, ShownSolutions, depends_on=SAME),
        make_grader(
            "semantic.verifier_portability",
            judge_verifier_portability,
            ShownSolutions,
            depends_on=repeats,
        ),
        make_grader(
            "semantic.replayability", judge_replayability, ShownSolutions, depends_on=repeats
        ),
        make_grader(
            "semantic.resource_envelope", judge_resource_envelope, ShownSolutions, depends_on=SAME
        ),
        make_grader(
            "semantic.monotonicity", judge_monotonicity, ShownSolutions, depends_on=repeats
        ),
        make_grader(
            "semantic.hacking_probes",
            judge_hacking_probes,
            HackAttempts,
            FloorEpisodes,
            depends_on=SAME,
        ),
    ]


def _oracle_max(subject: Subject) -> Judgment:
    """Judge the solutions; an environment without an oracle fails, as its reward is unverified."""
    none = subject.evidence.get(MissingOracle)
    if none is None:
        return make_grader(ORACLE, judge_oracle_max, ShownSolutions).judge(subject)
    mend = (
        "mend the file that validation.capabilities.oracle names"
        if none.is_declared
        else "bring a correct solution: validation.capabilities.oracle: {form: script, location: "
        "validation/oracle.py} (see openenv.validation.oracle)"
    )
    return reject(none.reason, remediation=mend)
