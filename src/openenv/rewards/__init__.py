"""Scores of steps and episodes: rubrics, judges, credit assignment and external scorers.

This package builds on `openenv.reward` (the `Score` value) and `openenv.errors`. `execution` uses
it to attach scores to observations; `rollouts`, `evals` and `cli` score recorded episodes with it.

Read `rubric.py` first (scores of steps), then `delayed.py` (scores of whole episodes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rewards.containers import Gate as Gate
    from openenv.rewards.containers import RubricDict as RubricDict
    from openenv.rewards.containers import RubricList as RubricList
    from openenv.rewards.containers import Sequential as Sequential
    from openenv.rewards.containers import WeightedSum as WeightedSum
    from openenv.rewards.credit import discounted as discounted
    from openenv.rewards.credit import resolve_credit as resolve_credit
    from openenv.rewards.credit import terminal as terminal
    from openenv.rewards.credit import uniform as uniform
    from openenv.rewards.delayed import Trajectory as Trajectory
    from openenv.rewards.delayed import TrajectoryScorer as TrajectoryScorer
    from openenv.rewards.judge import LLMJudge as LLMJudge
    from openenv.rewards.rubric import Rubric as Rubric
    from openenv.rewards.trajectory import (
        ExponentialDiscountingTrajectoryRubric as ExponentialDiscountingTrajectoryRubric,
    )
    from openenv.rewards.trajectory import TrajectoryRubric as TrajectoryRubric
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
