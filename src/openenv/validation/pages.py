"""What people read of a validation: a page of HTML that needs nothing else, Markdown, a badge.

The page makes no request and runs no program.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from openenv._internal.reports.pages import plain, rendered
from openenv.validation.checks import Property, about
from openenv.validation.policy import SeverityPolicy
from openenv.validation.report import AnyReport, CheckResult
from openenv.validation.scores import PropertyScore, Scores
from openenv.validation.types import CheckStatus, Level, Severity, Verdict

__all__ = ["Page", "badge", "filled", "html_page", "markdown_page"]

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
    """What a page shows.

    Attributes:
        report: The report.
        policy: What its verdict was made by.
        scores: How much has been shown.
        provider: What the package was started by; None where it was not.
        seconds: That the run took.
    """

    report: AnyReport
    policy: SeverityPolicy
    scores: Scores
    provider: str | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The package's name."""
        return self.report.manifest.name if self.report.manifest else self.report.target

    @property
    def levels(self) -> list[str]:
        """The levels that were measured."""
        return [LEVELS[level] for level in self.report.levels_run]

    def ended(self, *statuses: CheckStatus) -> list[CheckResult]:
        """The results of checks that ended so, those that fail the package first."""
        weights = {entry.check_id: entry.severity for entry in self.policy.entries}
        order = (Severity.FAIL, Severity.WARN, Severity.ADVISORY)
        found = [result for result in self.report.results if result.status in statuses]
        return sorted(found, key=lambda one: order.index(weights.get(one.check_id, Severity.WARN)))

    @property
    def to_mend(self) -> list[CheckResult]:
        """The checks that failed, or are themselves at fault."""
        return self.ended(CheckStatus.FAIL, CheckStatus.ERROR)

    @property
    def skipped(self) -> list[CheckResult]:
        """The checks that were not measured."""
        return self.ended(CheckStatus.SKIP)

    def severity(self, check_id: str) -> str:
        """What a check's failure does to the verdict."""
        found = (e.severity.value for e in self.policy.entries if e.check_id == check_id)
        return next(found, Severity.WARN.value)


# ------------------------------------------------------------------ HTML


def html_page(page: Page) -> str:
    """Write a page of HTML.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
    """
    from openenv.validation.plots import learning_plots

    return filled("report.html", page=page, plots=learning_plots(page.report.results))


def filled(template: str, **values: Any) -> str:
    """Fill one of our templates of HTML.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
    """
    common = {"about": about, "properties": list(Property), "points": points, "seen": seen}
    return rendered("openenv.validation", template, {**common, **values})


def points(value: float | None) -> str:
    """A score, for people."""
    return "-" if value is None else f"{value:.0f}"


def seen(result: CheckResult) -> str:
    """What a check saw, in a line: its words, or the first of what it measured."""
    if result.evidence:
        return "; ".join(result.evidence)
    simple = [
        f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}"
        for name, value in result.measured.items()
        if isinstance(value, int | float | str)
    ]
    return ", ".join(simple[:MEASURED])


# ------------------------------------------------------------------ Markdown


def markdown_page(page: Page) -> str:
    """Write the same as Markdown, without plots."""
    return "\n".join(_markdown(page)) + "\n"


def _markdown(page: Page) -> Iterator[str]:
    report = page.report
    yield f"# Validation of {plain(page.name)}"
    yield ""
    yield (
        f"**{report.verdict.value.upper()}**, {points(page.scores.total)} of 100 points; policy "
        f"{report.policy_version}, levels: {', '.join(page.levels)}"
        f"{f', run by: {page.provider}' if page.provider else ''}"
    )
    yield ""
    yield "| property | score | passed | failed | not measured |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    yield from (_property_row(one) for one in page.scores.properties)
    for title, results in (("To mend", page.to_mend), ("Not measured", page.skipped)):
        if results:
            yield from ("", f"## {title}", "")
            yield from _details(results)
    yield from ("", "## All checks", "")
    yield "| check | question | result |"
    yield "| --- | --- | --- |"
    for result in report.results:
        yield f"| `{result.check_id}` | {about(result.check_id).question} | {result.status.value} |"


def _property_row(one: PropertyScore) -> str:
    failed = one.counts[CheckStatus.FAIL] + one.counts[CheckStatus.ERROR]
    counts = (one.counts[CheckStatus.PASS], failed, one.counts[CheckStatus.SKIP])
    return f"| {one.property.value} | {points(one.value)} | {' | '.join(map(str, counts))} |"


def _details(results: Iterable[CheckResult]) -> Iterator[str]:
    for result in results:
        yield f"- `{result.check_id}` ({result.status.value}): {plain('; '.join(result.evidence))}"
        if result.remediation:
            lines = result.remediation.splitlines()
            if len(lines) == 1:
                yield f"  - {plain(lines[0])}"
            else:
                yield from ("", *(f"      {line}" for line in lines), "")


# ------------------------------------------------------------------ the badge

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


def badge(verdict: Verdict, scores: Scores, name: str = "openenv validate") -> str:
    """Draw a badge: the verdict, and how many points of 100 there are.

    Args:
        verdict: Of the report.
        scores: Of the report.
        name: What stands on its left.
    """
    value = f"{verdict.value} {points(scores.total)}"
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
