"""The old path `openenv.core.rubrics`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rewards.containers import Gate as Gate
    from openenv.rewards.containers import RubricDict as RubricDict
    from openenv.rewards.containers import RubricList as RubricList
    from openenv.rewards.containers import Sequential as Sequential
    from openenv.rewards.containers import WeightedSum as WeightedSum
    from openenv.rewards.judge import LLMJudge as LLMJudge
    from openenv.rewards.rubric import Rubric as Rubric
    from openenv.rewards.trajectory import (
        ExponentialDiscountingTrajectoryRubric as ExponentialDiscountingTrajectoryRubric,
    )
    from openenv.rewards.trajectory import TrajectoryRubric as TrajectoryRubric
    from openenv.core.rubrics import base as base
    from openenv.core.rubrics import containers as containers
    from openenv.core.rubrics import llm_judge as llm_judge
    from openenv.core.rubrics import trajectory as trajectory
else:
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core.rubrics"])
