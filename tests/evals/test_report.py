"""Reports: whole, safe to open, and of a bounded size."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from support.runs import FAILED, header, rollout, run_of

from openenv._internal.reports.plots import Plot
from openenv.evals import (
    Comparison,
    Evaluation,
    compare,
    evaluate,
    html_report,
    markdown_report,
)
from openenv.evals.plots import comparison_plots, evaluation_plots
from openenv.evals.report import number, p_value, signed

pytestmark = pytest.mark.slow  # each draws plots

NASTY = '<script>alert(1)</script>|$x_1$ "quoted" & `code`'

# What has no end tag.
VOID = {"meta", "path", "use", "rect", "line", "br", "image"}


class Page(HTMLParser):
    """What a page is made of, and that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def a_run(tasks: int = 12, samples: int = 4, seed: int = 0, **names: str) -> Evaluation:
    chance = random.Random(seed)
    rollouts = []
    for i in range(tasks):
        for sample in range(samples):
            correct = float(chance.random() < i / tasks) * 0.8
            rollouts.append(
                rollout(
                    f"task {i}",
                    sample,
                    correct + 0.2,
                    components={"correct": correct, "format": 0.2},
                    task={"group": f"family {i % 3}", "difficulty": i % 4},
                )
            )
    return evaluate(rollouts, header(**names))


def both(seeds: tuple[int, int] = (1, 2), **options: Any) -> tuple[Evaluation, Comparison]:
    before, after = (a_run(seed=seed, **options) for seed in seeds)
    return after, compare(before, after)


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(html_report(*both()))


# ------------------------------------------------------------------ the page


@pytest.mark.extended("evaluates thousands of tasks")
def test_the_page_has_all_plots_and_all_tasks(page: Page) -> None:
    assert page.tags.count("svg") == 6
    assert all(f"task {i}" in page.text for i in range(12))
    for words in ("pass@4", "component correct", "family 2", "By difficulty", "How to read this"):
        assert words in page.text


def test_the_page_asks_for_nothing_from_elsewhere(page: Page) -> None:
    assert {"script", "link", "iframe", "img", "object"}.isdisjoint(page.tags)
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "action"):
            assert value is not None and value.startswith("#"), (tag, name, value)
        assert "http" not in (value or "") or name.startswith("xmlns"), (tag, name, value)
    policy = [value for _, _, value in page.attributes if value and "default-src" in value]
    assert policy and "'none'" in policy[0]


def test_ids_of_the_page_are_there_once_and_every_reference_leads_somewhere(page: Page) -> None:
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert ids and len(ids) == len(set(ids))
    used = {value[1:] for _, name, value in page.attributes if name == "xlink:href" and value}
    clips = re.findall(r"url\(#([^)]+)\)", " ".join(v or "" for _, _, v in page.attributes))
    assert clips and {*used, *clips} <= set(ids)


def test_names_are_text_wherever_they_stand() -> None:
    def run() -> Evaluation:
        failed = rollout("b", reward=FAILED, id="f")
        failed.failures[0].message = NASTY
        rollouts = [
            rollout(NASTY, reward=1.0, components={NASTY: 1.0}, task={"group": NASTY}),
            rollout(NASTY, 1, 0.0, components={NASTY: 0.0}, task={"group": NASTY}),
            rollout("c"),
            failed,
        ]
        return evaluate(rollouts, header(environment=NASTY, policy=NASTY, settings={"x": NASTY}))

    made = run(), compare(run(), run(), names=(NASTY, NASTY))
    page = Page(html_report(*made))
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") >= 8
    text = markdown_report(*made)
    assert "<" not in text and "&lt;script&gt;" in text
    rows = [line for line in text.splitlines() if line.startswith("| &lt;")]
    assert rows and {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {6, 8}


@pytest.mark.extended("evaluates thousands of tasks")
@pytest.mark.slow
def test_every_plot_is_an_svg_without_anything_that_changes() -> None:
    run, compared = both()
    plots = [*evaluation_plots(run), *comparison_plots(compared)]
    again = [*evaluation_plots(run), *comparison_plots(compared)]
    assert [one.svg for one in plots] == [one.svg for one in again]
    for one in plots:
        assert ElementTree.fromstring(one.svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert one.caption.endswith(".")


def test_names_in_plots_are_no_formulas_and_their_ends_are_shown() -> None:
    """Of names that begin alike it is the end that tells them apart."""
    long = "a-component-with-a-name-that-is-long-{}"
    parts = {"$x_1$": 0.5, long.format(1): 0.25, long.format(2): 0.25}
    run = evaluate([rollout("a", components=parts)], header())
    (plot,) = (one for one in evaluation_plots(run) if one.name == "components")
    assert ">$x_1$<" in plot.svg
    assert len(set(re.findall(r">(a-comp[^<]*)<", plot.svg))) == 2


def plotted(plots: list[Plot]) -> list[str]:
    return [one.name for one in plots]


# ------------------------------------------------------------------ the smallest and the largest


def test_one_task_with_one_sample_has_a_report() -> None:
    run = evaluate(run_of({"a": [1.0]}), header(environment="", policy=""))
    page = Page(html_report(run, compare(run, run)))
    assert "There is one task only" in page.text
    assert plotted(evaluation_plots(run)) == ["rewards", "tasks"]
    assert "| a | 1 | 1 |" in markdown_report(run)


def test_a_run_without_any_reward_has_a_report() -> None:
    run = evaluate(run_of({"a": [FAILED, None], "b": [None]}), header())
    page = Page(html_report(run, compare(run, run)))
    assert "3 of 3 samples have no known reward" in page.text
    assert evaluation_plots(run) == []
    assert "| solved | - | - |" in markdown_report(run)


@pytest.mark.extended("evaluates ten thousand tasks")
@pytest.mark.slow
def test_ten_thousand_tasks_have_a_report_of_a_bounded_size() -> None:
    before = evaluate(run_of({f"t{i}": [float(i % 3 == 0)] for i in range(10_000)}), header())
    after = evaluate(run_of({f"t{i}": [float(i % 2 == 0)] for i in range(10_000)}), header())
    text = html_report(after, compare(before, after))
    assert len(text) < 1_000_000
    page = Page(text)
    assert "200 of 10,000 tasks; all of them are in result.json" in page.text
    assert "60 of 3,333 tasks" in page.text
    short = markdown_report(after, compare(before, after))
    assert "50 of 10,000 tasks" in short and len(short) < 20_000


def test_many_rewards_have_bins_and_many_tasks_one_line() -> None:
    chance = random.Random(3)
    run = evaluate(run_of({f"t{i}": [chance.random()] for i in range(500)}), header())
    plots = {one.name: one for one in evaluation_plots(run)}
    assert "t7" not in plots["tasks"].svg and "tasks, the easiest first (500)" in plots["tasks"].svg
    # The points of so many tasks would be many; fields are not.
    (scatter,) = (one for one in comparison_plots(compare(run, run)) if one.name == "scatter")
    assert len(scatter.svg) < 200_000


# ------------------------------------------------------------------ figures in words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (0.0, "0.00"),
        (0.5, "0.500"),
        (-0.000942, "-0.000942"),
        (219.04, "219"),
        (12345.6, "12,346"),
        (1.0, "1.00"),
    ],
)
def test_figures_have_three_digits(value: float | None, words: str) -> None:
    assert number(value) == words


def test_differences_have_their_signs_and_small_p_values_are_said_to_be() -> None:
    assert (signed(0.25), signed(-0.25), signed(None)) == ("+0.250", "-0.250", "-")
    assert [p_value(value) for value in (None, 0.0004, 0.04)] == ["-", "below 0.001", "0.040"]
