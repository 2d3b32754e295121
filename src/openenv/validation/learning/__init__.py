"""The checks of ``--learn``: whether a small learner gets better in the environment."""

from __future__ import annotations

from collections.abc import Sequence

from openenv.validation.graders import Grader
from openenv.validation.judging import STARTUP, judged
from openenv.validation.learner import LearningReport
from openenv.validation.learning.collecting import References, collect_learning
from openenv.validation.learning.judges import judge_curve, judge_group_signal

__all__ = ["collect_learning", "learning_checks"]

SIGNAL = "learning.group_signal"


def learning_checks() -> Sequence[Grader]:
    """The graders of this level. Where no group has a signal there is nothing to learn from."""
    return [
        judged(SIGNAL, judge_group_signal, LearningReport),
        judged(
            "learning.curve",
            judge_curve,
            LearningReport,
            References,
            depends_on=(STARTUP, SIGNAL),
        ),
    ]
