"""What an evaluation is asked for, and what comes of it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EvalConfig", "EvalResult"]


class EvalConfig(BaseModel):
    """What is to be evaluated, by which harness: what one needs to do it again."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    harness_name: str = Field(description="The class of the harness.")
    harness_version: str = Field(description="Its version.")
    library_versions: dict[str, str] = Field(description="Versions of what else has a part in it.")
    dataset: str = Field(description="What is evaluated on: a data set, or an environment.")
    eval_parameters: dict[str, Any] = Field(description="What the harness's `run` reads.")


class EvalResult(BaseModel):
    """What an evaluation came to."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    config: EvalConfig = Field(description="What was asked for.")
    scores: dict[str, Any] = Field(description="The figures, by name.")
