"""The learning level, for ``--learn``: does a small learner improve in the environment?

`collector.py` runs `openenv.validation.learner`; `judges.py` judges the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from openenv.validation.check_factory import STARTUP, make_grader
from openenv.validation.graders import Grader
from openenv.validation.learner import LearningReport
from openenv.validation.learning.collector import ReferenceRewards, collect_learning
from openenv.validation.learning.judges import judge_curve, judge_group_signal

__all__ = ["collect_learning", "learning_checks"]

SIGNAL = "learning.group_signal"


def learning_checks() -> Sequence[Grader]:
    """Return the graders of this level. Without signal in any group the curve is not judged."""
    return [
        make_grader(SIGNAL, judge_group_signal, LearningReport),
        make_grader(
            "learning.curve",
            judge_curve,
            LearningReport,
            ReferenceRewards,
            depends_on=(STARTUP, SIGNAL),
        ),
    ]
