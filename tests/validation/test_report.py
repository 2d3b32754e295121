"""Reports: as JSON that the public package reads, as pages for people, and as a badge."""

from __future__ import annotations

import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.validated import write_package
from support.venvs import python_of

from openenv.validation import CheckStatus, Level, Verdict, load_policy, run_validation, validate
from openenv.validation.checks import score_results
from openenv.validation.pages import Page, draw_badge, html_page, markdown_page
from openenv.validation.report import (
    ReportError,
    ValidationReportV2,
    accept,
    read_report,
    reject,
    skip,
    write_report,
)

PEER = Path(__file__).parents[2] / ".peer"
V3 = load_policy("v3")
CURVE = {
    "episodes": [1, 2, 3],
    "learner": [0.1, 0.5, 0.9],
    "random": [0.1, None, 0.1],
    "low": [0.0, 0.4, 0.8],
    "high": [0.2, 0.6, 1.0],
    "oracle": 1.0,
}


def page_of(package: Path) -> Page:
    """A page with something of everything in it."""
    report = run_validation(package, max_level=Level.STATIC, skip_build=True)
    report.results += [
        reject("idle <b>earns</b> | 1", remediation="write:\nvalidation: {}").result_of(
            "semantic.floor_gap"
        ),
        reject("an archive", remediation="unpack it").result_of("static.layout"),
        skip("network_policy: it lacks it").result_of("runtime.network_policy"),
        accept("it learns", curve=CURVE).result_of("learning.curve"),
    ]
    return Page(report, V3, score_results(report.results, V3), "process", 1.5)


class Elements(HTMLParser):
    """Reads a page: that its elements are closed, and what it refers to."""

    VOID = ("meta", "br", "hr", "img", "link", "path", "use", "rect")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href") and v and v[0] != "#"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def read(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    elements.close()
    return elements


# ------------------------------------------------------------------ JSON


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = run_validation(write_package(tmp_path), max_level=Level.STATIC, skip_build=True)
    text = write_report(report, tmp_path / "new" / "report.json")
    assert read_report(tmp_path / "new" / "report.json") == report
    assert list(json.loads(text)) == list(json.loads(write_report(report)))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"report_schema_version": "9"}', None])
def test_what_is_no_report_is_refused(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ReportError, match=r"report\.json"):
        read_report(file)


@pytest.mark.compat
def test_the_public_package_reads_our_reports(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    first = run_validation(package, max_level=Level.STATIC, skip_build=True)
    everything = {**first.model_dump(), "report_schema_version": "2", "levels_run": [1, 2, 3, 4]}
    second = ValidationReportV2.model_validate(everything)
    second.results += [accept().result_of(entry.check_id) for entry in V3.entries]
    program = (
        "import sys; from openenv.validation.report import *; "
        "one, two = sys.argv[1:]; "
        "print(ValidationReport.model_validate_json(open(one).read()).verdict.value, "
        "len(ValidationReportV2.model_validate_json(open(two).read()).results))"
    )
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    write_report(first, files[0])
    write_report(second, files[1])
    done = subprocess.run(
        [python_of(PEER, "openenv==0.10.0"), "-c", program, *map(str, files)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["warn", str(len(second.results))]


@pytest.mark.compat
def test_the_public_policies_are_the_public_ones(tmp_path: Path) -> None:
    program = (
        "from openenv.validation import load_policy; import json; "
        "print(json.dumps([load_policy(v).model_dump(mode='json') for v in ('v1', 'v2')]))"
    )
    done = subprocess.run(
        [python_of(PEER, "openenv==0.10.0"), "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for theirs, version in zip(json.loads(done.stdout), ("v1", "v2"), strict=True):
        own = load_policy(version).model_dump(mode="json")
        assert own["bounds"] == theirs["bounds"]
        key = "check_id"
        assert sorted(own["entries"], key=lambda one: str(one[key])) == sorted(
            theirs["entries"], key=lambda one: str(one[key])
        )


# ------------------------------------------------------------------ pages


def test_a_page_needs_nothing_else(tmp_path: Path) -> None:
    page = html_page(page_of(write_package(tmp_path)))
    elements = read(page)
    assert elements.open == [] and elements.addresses == []
    assert not elements.names & {"script", "link", "iframe", "img"}
    assert "default-src 'none'" in page


def test_a_page_shows_what_to_mend_and_the_curve(tmp_path: Path) -> None:
    page = html_page(page_of(write_package(tmp_path)))
    assert "idle &lt;b&gt;earns&lt;/b&gt;" in page and "<b>earns" not in page
    assert "validation: {}" in page
    assert "<svg" in page and "learner" in page
    assert page.index("semantic.floor_gap") < page.index("static.layout</code> Are")


def test_a_page_without_a_curve_has_no_plot(tmp_path: Path) -> None:
    validation = validate(write_package(tmp_path), max_level=Level.STATIC, skip_build=True)
    page = html_page(Page(validation.report, validation.policy, validation.scores))
    assert "<svg" not in page


def test_the_same_page_is_written_twice(tmp_path: Path) -> None:
    shown = page_of(write_package(tmp_path))
    assert html_page(shown) == html_page(shown)


def test_markdown_shows_the_same(tmp_path: Path) -> None:
    text = markdown_page(page_of(write_package(tmp_path)))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count(" | ") + 2 >= 4 for line in rows)
    assert "idle &lt;b&gt;earns&lt;/b&gt; \\| 1" in text
    assert "| secure | 0 | 0 | 0 | 1 |" in text


def test_a_page_counts_every_result(tmp_path: Path) -> None:
    shown = page_of(write_package(tmp_path))
    counted = sum(sum(one.counts.values()) for one in shown.scores.properties)
    assert counted == len(shown.report.results)
    assert {one.status for one in shown.to_mend} == {CheckStatus.FAIL}


@pytest.mark.parametrize("verdict", Verdict)
def test_a_badge_is_a_picture(verdict: Verdict) -> None:
    picture = draw_badge(
        verdict, score_results([accept().result_of("static.sbom")], V3), name="a <b> & c"
    )
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert texts == ["a <b> & c", f"{verdict.value} 100"]
