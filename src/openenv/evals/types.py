"""Configurations and results of evaluations."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EvalConfig", "EvalResult"]


class EvalConfig(BaseModel):
    """The configuration of an evaluation, sufficient to repeat the evaluation."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    harness_name: str = Field(description="The class of the harness.")
    harness_version: str = Field(description="Its version.")
    library_versions: dict[str, str] = Field(description="Versions of what else has a part in it.")
    dataset: str = Field(description="What is evaluated on: a data set, or an environment.")
    eval_parameters: dict[str, Any] = Field(description="What the harness's `run` reads.")


class EvalResult(BaseModel):
    """The result of an evaluation."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    config: EvalConfig = Field(description="What was asked for.")
    scores: dict[str, Any] = Field(description="The figures, by name.")
