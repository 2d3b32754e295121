"""Scores of steps and of episodes: rubrics, judges, credit assignment, rewards made elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rewards.containers import Gate, RubricDict, RubricList, Sequential, WeightedSum
    from openenv.rewards.credit import credit_named, discounted, terminal, uniform
    from openenv.rewards.delayed import Trajectory, TrajectoryScorer
    from openenv.rewards.judge import LLMJudge
    from openenv.rewards.rubric import Rubric
    from openenv.rewards.trajectory import (
        ExponentialDiscountingTrajectoryRubric,
        TrajectoryRubric,
    )

__all__ = [
    "ExponentialDiscountingTrajectoryRubric",
    "Gate",
    "LLMJudge",
    "Rubric",
    "RubricDict",
    "RubricList",
    "Sequential",
    "Trajectory",
    "TrajectoryRubric",
    "TrajectoryScorer",
    "WeightedSum",
    "credit_named",
    "discounted",
    "terminal",
    "uniform",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.rewards.containers": [
            "Gate",
            "RubricDict",
            "RubricList",
            "Sequential",
            "WeightedSum",
        ],
        "openenv.rewards.credit": ["credit_named", "discounted", "terminal", "uniform"],
        "openenv.rewards.delayed": ["Trajectory", "TrajectoryScorer"],
        "openenv.rewards.judge": ["LLMJudge"],
        "openenv.rewards.rubric": ["Rubric"],
        "openenv.rewards.trajectory": [
            "ExponentialDiscountingTrajectoryRubric",
            "TrajectoryRubric",
        ],
    },
)
