"""The base class of evaluation harnesses, their configurations and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EvalConfig", "EvalHarness", "EvalResult"]


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


class EvalHarness(ABC):
    """A harness that evaluates a dataset and returns figures."""

    @abstractmethod
    def run(
        self,
        harness_version: str,
        library_versions: dict[str, str],
        dataset: str,
        eval_parameters: dict[str, Any],
    ) -> dict[str, Any]:
        """Evaluate a dataset.

        Args:
            harness_version: The version of the harness, for the record.
            library_versions: Versions of the other libraries involved, for the record.
            dataset: The dataset or environment to evaluate on.
            eval_parameters: The parameters that the harness reads.

        Returns:
            The figures by name.
        """

    def run_from_config(self, config: EvalConfig) -> EvalResult:
        """Run the evaluation of a configuration, and return the figures with the configuration."""
        scores = self.run(
            harness_version=config.harness_version,
            library_versions=config.library_versions,
            dataset=config.dataset,
            eval_parameters=config.eval_parameters,
        )
        return EvalResult(config=config, scores=scores)

    @property
    def name(self) -> str:
        """The name of the harness: the name of the class."""
        return type(self).__name__
