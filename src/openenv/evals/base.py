"""The base class of evaluation harnesses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from openenv.evals.types import EvalConfig, EvalResult

__all__ = ["EvalHarness"]


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
            harness_version: The version of the harness, to be told of.
            library_versions: Versions of what else has a part in it, to be told of.
            dataset: The dataset or environment to evaluate on.
            eval_parameters: Whatever else the harness reads.

        Returns:
            The figures, by name.
        """

    def run_from_config(self, config: EvalConfig) -> EvalResult:
        """Evaluate what a configuration names; return the figures with the configuration."""
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
