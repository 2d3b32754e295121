"""Reports for people: a self-contained HTML page, Markdown and a badge.

The HTML page makes no requests and runs no scripts.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from openenv._internal.reports.pages import plain, rendered
from openenv.validation.checks import Property, Scores, describe_check
from openenv.validation.policy import SeverityPolicy
from openenv.validation.report import AnyReport, CheckResult
from openenv.validation.types import CheckStatus, Level, Severity, Verdict

LEVELS = {
    Level.STATIC: "static",
    Level.RUNTIME: "runtime",
    Level.SEMANTIC: "semantic",
    Level.STATISTICAL: "learning",
}
MEASURED = 4
COLOURS = {Verdict.PASS: "#00724f", Verdict.WARN: "#8a5a00", Verdict.FAIL: "#b23a00"}


@dataclass(frozen=True)
class Page:
    """The content of a report page."""

    report: AnyReport
    policy: SeverityPolicy  # the policy that decided the verdict
    scores: Scores
    # The provider that started the package; None if the package was not started.
    provider: str | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The package's name."""
        return self.report.manifest.name if self.report.manifest else self.report.target

    @property
    def levels(self) -> list[str]:
        """The names of the levels that were measured."""
        return [LEVELS[level] for level in self.report.levels_run]

    def ended(self, *statuses: CheckStatus) -> list[CheckResult]:
        """Return the results with these statuses, most severe first."""
        weights = {entry.check_id: entry.severity for entry in self.policy.entries}
        order = (Severity.FAIL, Severity.WARN, Severity.ADVISORY)
        found = [result for result in self.report.results if result.status in statuses]
        return sorted(found, key=lambda one: order.index(weights.get(one.check_id, Severity.WARN)))

    @property
    def to_mend(self) -> list[CheckResult]:
        """The checks that failed or could not run."""
        return self.ended(CheckStatus.FAIL, CheckStatus.ERROR)

    @property
    def skipped(self) -> list[CheckResult]:
        """The checks that were not measured."""
        return self.ended(CheckStatus.SKIP)

    def severity(self, check_id: str) -> str:
        """Return the severity of a check's failure."""
        found = (e.severity.value for e in self.policy.entries if e.check_id == check_id)
        return next(found, Severity.WARN.value)


def html_page(page: Page) -> str:
    """Render the report as HTML.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
    """
    from openenv.validation.plots import learning_plots

    return render_template("report.html", page=page, plots=learning_plots(page.report.results))


def render_template(template: str, **values: Any) -> str:
    """Render an HTML template of this package."""
    common = {
        "describe_check": describe_check,
        "properties": list(Property),
        "format_score": format_score,
        "summarize_result": summarize_result,
    }
    return rendered("openenv.validation", template, {**common, **values})


def format_score(value: float | None) -> str:
    """Format a score for people."""
    return "-" if value is None else f"{value:.0f}"


def summarize_result(result: CheckResult) -> str:
    """Summarize a result in one line: the evidence, or else the first measured values."""
    if result.evidence:
        return "; ".join(result.evidence)
    simple = [
        f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}"
        for name, value in result.measured.items()
        if isinstance(value, int | float | str)
    ]
    return ", ".join(simple[:MEASURED])


def markdown_page(page: Page) -> str:
    """Render the report as Markdown, without plots."""
    return "\n".join(_markdown(page)) + "\n"


def _markdown(page: Page) -> Iterator[str]:
    report = page.report
    yield f"# Validation of {plain(page.name)}"
    yield ""
    yield (
        f"**{report.verdict.value.upper()}**, {format_score(page.scores.total)} of 100 points; "
        f"policy {report.policy_version}, levels: {', '.join(page.levels)}"
        f"{f', run by: {page.provider}' if page.provider else ''}"
    )
    yield ""
    yield "| property | score | passed | failed | not measured |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for one in page.scores.properties:
        failed = one.counts[CheckStatus.FAIL] + one.counts[CheckStatus.ERROR]
        counts = (one.counts[CheckStatus.PASS], failed, one.counts[CheckStatus.SKIP])
        row = (one.property.value, format_score(one.value), *map(str, counts))
        yield f"| {' | '.join(row)} |"
    for title, results in (("To mend", page.to_mend), ("Not measured", page.skipped)):
        if results:
            yield from ("", f"## {title}", "", *_details(results))
    yield from ("", "## All checks", "")
    yield "| check | question | result |"
    yield "| --- | --- | --- |"
    for result in report.results:
        question = describe_check(result.check_id).question
        yield f"| `{result.check_id}` | {question} | {result.status.value} |"


def _details(results: Iterable[CheckResult]) -> Iterator[str]:
    for result in results:
        yield f"- `{result.check_id}` ({result.status.value}): {plain('; '.join(result.evidence))}"
        if result.remediation:
            lines = result.remediation.splitlines()
            if len(lines) == 1:
                yield f"  - {plain(lines[0])}"
            else:
                yield from ("", *(f"      {line}" for line in lines), "")


CHARACTER_WIDTH, PADDING = 6.6, 7
_BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{words}">
<title>{words}</title>
<rect width="{width}" height="20" rx="3" fill="#40464f"/>
<path d="M{left} 0h{right_less}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left}z" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left_middle}" y="14">{name}</text>
<text x="{right_middle}" y="14">{value}</text>
</g>
</svg>
"""


def draw_badge(verdict: Verdict, scores: Scores, name: str = "openenv validate") -> str:
    """Draw an SVG badge with the name on the left, and the verdict and the score on the right."""
    value = f"{verdict.value} {format_score(scores.total)}"
    left, right = (round(len(text) * CHARACTER_WIDTH) + 2 * PADDING for text in (name, value))
    return _BADGE.format(
        width=left + right,
        left=left,
        right_less=right - 3,
        colour=COLOURS[verdict],
        left_middle=left / 2,
        right_middle=left + right / 2,
        name=html.escape(name),
        value=value,
        words=html.escape(f"{name}: {value}"),
    )
