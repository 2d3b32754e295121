"""The old path `openenv.core.rubrics.llm_judge`; written by scripts/mirrors.py."""

from openenv.rewards.judge import LLMJudge as LLMJudge
from openenv.rewards.llm.client import LLMClient as LLMClient
from openenv.rewards.rubric import Rubric as Rubric

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
