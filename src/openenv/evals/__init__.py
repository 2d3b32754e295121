"""Evaluation: a policy's success rate and other figures with intervals, and comparisons of runs.

Read ``metrics.py`` first, which computes figures from rollouts. ``harness.py`` plays and evaluates,
``results.py`` stores, and ``comparison.py`` compares two runs. This package builds on
`openenv.rollouts`, which plays; the command line and validation use this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.evals.base import EvalConfig as EvalConfig
    from openenv.evals.base import EvalHarness as EvalHarness
    from openenv.evals.base import EvalResult as EvalResult
    from openenv.evals.comparison import Comparison as Comparison
    from openenv.evals.comparison import ComparisonError as ComparisonError
    from openenv.evals.comparison import compare as compare
    from openenv.evals.harness import EnvEvalHarness as EnvEvalHarness
    from openenv.evals.harness import EvalParameters as EvalParameters
    from openenv.evals.harness import EvalSchedule as EvalSchedule
    from openenv.evals.inspect_harness import InspectAIHarness as InspectAIHarness
    from openenv.evals.metrics import Evaluation as Evaluation
    from openenv.evals.metrics import EvaluationError as EvaluationError
    from openenv.evals.metrics import evaluate as evaluate
    from openenv.evals.report import html_report as html_report
    from openenv.evals.report import markdown_report as markdown_report
    from openenv.evals.reproducibility import Reproducibility as Reproducibility
    from openenv.evals.reproducibility import check_reproducible as check_reproducible
    from openenv.evals.results import compare_eval_results as compare_eval_results
    from openenv.evals.results import load_evaluation as load_evaluation
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
