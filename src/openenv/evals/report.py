"""Evaluation reports: a self-contained page of HTML, and Markdown.

The page makes no requests, runs no scripts, and can be read on a phone and on paper. If there are
many tasks, the page shows the hardest, and says so; ``result.json`` has all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from openenv._internal.reports.pages import rendered
from openenv.evals.comparison import Comparison
from openenv.evals.metrics import Evaluation, TaskResult

__all__ = ["html_report", "markdown_report"]

# Maximum number of rows in a table.
HTML_ROWS, MARKDOWN_ROWS = 200, 50

# Maximum number of names in a list of tasks.
NAMES = 60

TITLES = {
    "error": "failed",
    "unscored": "could not be scored",
    "truncation": "truncated",
    "limit": "ended by a limit",
    "given_up": "given up by the policy",
    "steps": "steps",
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "completion tokens",
    "seconds": "seconds",
}


def html_report(evaluation: Evaluation, compared: Comparison | None = None) -> str:
    """Write the report of a run as a page of HTML.

    Args:
        evaluation: The run.
        compared: The comparison with another run, if any.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
    """
    from openenv.evals.plots import comparison_plots, evaluation_plots

    return _rendered(
        "report.html",
        evaluation,
        compared,
        HTML_ROWS,
        plots=evaluation_plots(evaluation),
        comparison_plots=[] if compared is None else comparison_plots(compared),
    )


def markdown_report(evaluation: Evaluation, compared: Comparison | None = None) -> str:
    """Write the report of a run as Markdown, without plots.

    Args:
        evaluation: The run.
        compared: The comparison with another run, if any.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
    """
    return _rendered("report.md", evaluation, compared, MARKDOWN_ROWS)


def _rendered(
    template: str,
    evaluation: Evaluation,
    compared: Comparison | None,
    rows: int,
    **more: Any,
) -> str:
    values = {
        "run": evaluation,
        "compared": compared,
        "tasks": _hardest(evaluation, rows),
        "costs": {name: cost for name, cost in evaluation.costs.items() if cost.value},
        "fallible": {name: rate for name, rate in evaluation.rates.items() if rate.value},
        "titles": TITLES,
        "rows": rows,
        "names_shown": NAMES,
        **more,
    }
    return rendered("openenv.evals", template, values, FILTERS)


def _hardest(evaluation: Evaluation, rows: int) -> list[tuple[str, TaskResult]]:
    def key(item: tuple[str, TaskResult]) -> tuple[float, float, str]:
        name, task = item
        # Unknown figures come last.
        success, reward = (math.inf if f is None else f for f in (task.success, task.reward))
        return success, reward, name

    return sorted(evaluation.per_task.items(), key=key)[:rows]


NONE = "-"


def percent(share: float | None) -> str:
    """Format a share in percent."""
    return NONE if share is None else f"{100 * share:.1f} %"


def number(value: float | None) -> str:
    """Format a figure with three significant digits, or from 1,000 on without decimals."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def p_value(value: float | None) -> str:
    """Format a p-value with three decimals."""
    if value is None:
        return NONE
    return "below 0.001" if value < 1e-3 else f"{value:.3f}"


def _interval(show: Callable[[float | None], str]) -> Callable[[Any], str]:
    def shown(figure: Any) -> str:
        return NONE if figure.low is None else f"{show(figure.low)} to {show(figure.high)}"

    return shown


def signed(value: float | None, show: Callable[[float | None], str] = number) -> str:
    """Format a difference with a sign."""
    if value is None:
        return NONE
    return f"{'+' if value > 0 else ''}{show(value)}"


def moment(seconds: float) -> str:
    """Format a time in seconds since the epoch; return "" for an unknown time (0)."""
    if not seconds:
        return ""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"


def rewards(task: TaskResult) -> str:
    """Format the rewards of a task's first eight samples."""
    shown = [NONE if s.reward is None else f"{s.reward:.3g}" for s in task.samples[:8]]
    return ", ".join(shown) + (" …" if len(task.samples) > len(shown) else "")


FILTERS: dict[str, Callable[..., Any]] = {
    "percent": percent,
    "number": number,
    "p_value": p_value,
    "percent_interval": _interval(percent),
    "number_interval": _interval(number),
    "signed": signed,
    "signed_percent": lambda value: signed(value, percent),
    "moment": moment,
    "rewards": rewards,
}
