"""Evaluation: how well a policy does, how sure that is, and what two runs have apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.evals.base import EvalHarness
    from openenv.evals.comparison import Comparison, ComparisonError, compare
    from openenv.evals.harness import EnvEvalHarness, EvalParameters, EvalSchedule
    from openenv.evals.inspect_harness import InspectAIHarness
    from openenv.evals.metrics import Evaluation, EvaluationError, evaluate
    from openenv.evals.report import html_report, markdown_report
    from openenv.evals.reproducibility import Reproducibility, check_reproducible
    from openenv.evals.results import compare_eval_results, load_evaluation
    from openenv.evals.types import EvalConfig, EvalResult

__all__ = [
    "Comparison",
    "ComparisonError",
    "EnvEvalHarness",
    "EvalConfig",
    "EvalHarness",
    "EvalParameters",
    "EvalResult",
    "EvalSchedule",
    "Evaluation",
    "EvaluationError",
    "InspectAIHarness",
    "Reproducibility",
    "check_reproducible",
    "compare",
    "compare_eval_results",
    "evaluate",
    "html_report",
    "load_evaluation",
    "markdown_report",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.evals.base": ["EvalHarness"],
        "openenv.evals.comparison": ["Comparison", "ComparisonError", "compare"],
        "openenv.evals.harness": ["EnvEvalHarness", "EvalParameters", "EvalSchedule"],
        "openenv.evals.inspect_harness": ["InspectAIHarness"],
        "openenv.evals.metrics": ["Evaluation", "EvaluationError", "evaluate"],
        "openenv.evals.report": ["html_report", "markdown_report"],
        "openenv.evals.reproducibility": ["Reproducibility", "check_reproducible"],
        "openenv.evals.results": ["compare_eval_results", "load_evaluation"],
        "openenv.evals.types": ["EvalConfig", "EvalResult"],
    },
)
