"""Plots for evaluation reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openenv._internal.packages import needs
from openenv._internal.reports.plots import BLUE, GREY, ORANGE, SKY, Plot, drawn, plot, styled
from openenv.evals.comparison import Comparison, FigureDifference
from openenv.evals.metrics import Estimate, Evaluation

with needs("a report of an evaluation", "pip install 'openenv[eval]'"):
    import numpy as np
    from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["comparison_plots", "evaluation_plots"]

WIDTH = 5.2  # inches

# Maximum number of tasks with one bar each, and of points that are drawn individually.
NAMED_TASKS, POINTS = 30, 400

# Maximum number of distinct rewards with one bar each, and of bins of a histogram otherwise.
DISTINCT, BINS = 12, 40

COMPONENTS = 30
LONGEST_NAME = 28


def evaluation_plots(evaluation: Evaluation) -> list[Plot]:
    """Plot the rewards, pass@k, components and tasks of a run."""
    with styled():
        plots = [
            _rewards(evaluation),
            _pass_at_k(evaluation),
            _components(evaluation),
            _tasks(evaluation),
        ]
    return [one for one in plots if one is not None]


def comparison_plots(compared: Comparison) -> list[Plot]:
    """Plot the differences of two runs, and each task's rewards in both."""
    with styled():
        plots = [_forest(compared), _scatter(compared)]
    return [one for one in plots if one is not None]


def _rewards(evaluation: Evaluation) -> Plot | None:
    rewards = np.array(
        [
            sample.reward
            for task in evaluation.per_task.values()
            for sample in task.samples
            if sample.reward is not None
        ]
    )
    if not len(rewards):
        return None
    with drawn(WIDTH, 2.8) as (figure, axes):
        _histogram(axes, rewards)
        axes.axvline(evaluation.threshold, color=ORANGE, linestyle="--", label="solved from here")
        mean = evaluation.mean_reward.value
        if mean is not None:
            axes.axvline(mean, color="black", linewidth=1.5, label=f"mean {mean:.3g}")
        axes.set(xlabel="reward of a sample", ylabel="samples")
        axes.grid(axis="x", visible=False)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside upper right", ncols=2, frameon=False)
    return plot(figure, "rewards", "Rewards of all samples that have one.")


def _histogram(axes: Axes, rewards: np.ndarray) -> None:
    values, counts = np.unique(rewards, return_counts=True)
    if len(values) <= DISTINCT:
        apart = np.diff(values).min() if len(values) > 1 else 1.0
        widest = max(apart * 0.8, float(np.ptp(values)) * 0.01)
        axes.bar(values, counts, width=widest, color=BLUE)
        axes.margins(x=0.1)
    else:
        edges = np.histogram_bin_edges(rewards, bins="auto")
        axes.hist(rewards, bins=min(BINS, len(edges) - 1), color=BLUE)


def _tasks(evaluation: Evaluation) -> Plot | None:
    shares = {
        name: task.success for name, task in evaluation.per_task.items() if task.success is not None
    }
    if not shares:
        return None
    in_order = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    values = np.array([share for _, share in in_order])
    if len(in_order) <= NAMED_TASKS:
        with drawn(WIDTH, 0.9 + 0.24 * len(in_order)) as (figure, axes):
            _bars(axes, [name for name, _ in in_order], values)
        return plot(
            figure, "tasks", "How often each task was solved, the easiest first; a cross is never."
        )
    with drawn(WIDTH, 2.8) as (figure, axes):
        places = np.arange(len(values) + 1)
        axes.stairs(values, places, fill=True, color=SKY)
        axes.stairs(values, places, color=BLUE, baseline=None)
        axes.set(
            xlabel=f"tasks, the easiest first ({len(values):,})",
            ylabel="share of samples solved",
            xlim=(0, len(values)),
            ylim=(0, 1.03),
        )
    return plot(
        figure,
        "tasks",
        "How often each task was solved, the easiest first. Where the line is at neither end, some "
        "samples solve a task and others do not.",
    )


def _bars(axes: Axes, names: Sequence[str], values: np.ndarray) -> None:
    places = np.arange(len(names))
    axes.barh(places, values, color=BLUE, height=0.7)
    # A task that is never solved gets a cross; otherwise it would look missing.
    never = places[values == 0]
    axes.plot(np.zeros(len(never)), never, "x", color=ORANGE, markersize=6, clip_on=False)
    axes.set_yticks(places, [_short(name) for name in names])
    axes.invert_yaxis()
    axes.set(xlabel="share of samples solved", xlim=(0, 1.0))
    axes.grid(axis="y", visible=False)


def _pass_at_k(evaluation: Evaluation) -> Plot | None:
    known = {k: e.value for k, e in evaluation.pass_at_k.items() if e.value is not None}
    if len(known) < 2:
        return None
    ks = list(known)
    with drawn(WIDTH, 2.8) as (figure, axes):
        _band(axes, evaluation)
        axes.plot(ks, list(known.values()), "o-", color=BLUE, label="pass@k")
        if max(ks) > 20:
            axes.set_xscale("log", base=2)
        axes.set_xticks(_ticks(ks), [str(k) for k in _ticks(ks)])
        axes.minorticks_off()
        axes.set(xlabel="k", ylabel="tasks solved by one of k", ylim=(0, 1.03))
        axes.legend(loc="lower right", frameon=False)
    return plot(
        figure, "pass-at-k", "How many tasks are solved by at least one of k samples (pass@k)."
    )


def _band(axes: Axes, evaluation: Evaluation) -> None:
    ends = [
        (k, e.low, e.high)
        for k, e in evaluation.pass_at_k.items()
        if e.low is not None and e.high is not None
    ]
    if ends:
        ks, lows, highs = zip(*ends, strict=True)
        label = f"{evaluation.level:.0%} interval"
        axes.fill_between(ks, lows, highs, color=SKY, alpha=0.4, linewidth=0, label=label)


def _ticks(ks: Sequence[int]) -> list[int]:
    if len(ks) <= 10:
        return list(ks)
    powers = [k for k in ks if not k & (k - 1)]
    last = ks[-1]
    return powers if last < powers[-1] * 1.5 else [*powers, last]


def _components(evaluation: Evaluation) -> Plot | None:
    parts = {name: part for name, part in evaluation.components.items() if part.value is not None}
    shown = list(parts.items())[:COMPONENTS]
    if not shown:
        return None
    with drawn(WIDTH, 0.9 + 0.3 * len(shown)) as (figure, axes):
        for place, (_, part) in enumerate(shown):
            _whisker(axes, place, part)
        axes.axvline(0.0, color=GREY, linewidth=0.8)
        axes.set_yticks(range(len(shown)), [_short(name) for name, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set(xlabel="mean a sample")
    more = len(parts) - len(shown)
    rest = f" {more:,} more are not shown." if more > 0 else ""
    caption = f"The parts of the reward, with {evaluation.level:.0%} intervals.{rest}"
    return plot(figure, "components", caption)


def _whisker(axes: Axes, place: int, estimate: Estimate | FigureDifference) -> None:
    value = estimate.difference if isinstance(estimate, FigureDifference) else estimate.value
    assert value is not None
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [place, place], color=BLUE, linewidth=2)
    axes.plot([value], [place], "o", color=BLUE, markersize=7)


def _forest(compared: Comparison) -> Plot | None:
    tested = [
        one
        for one in compared.differences
        if one.p_value is not None and one.difference is not None
    ][:COMPONENTS]
    if not tested:
        return None
    with drawn(WIDTH, 0.9 + 0.3 * len(tested)) as (figure, axes):
        for place, one in enumerate(tested):
            _whisker(axes, place, one)
        axes.axvline(0.0, color=ORANGE, linestyle="--", linewidth=1)
        axes.set_yticks(range(len(tested)), [_short(one.name) for one in tested])
        axes.set_ylim(len(tested) - 0.5, -0.5)
        axes.set(xlabel=f"{_short(compared.after)}\nless {_short(compared.before)}")
    return plot(
        figure,
        "differences",
        f"The differences of the two runs, with {compared.level:.0%} intervals. To the right "
        "of the dashed line the second run is higher.",
    )


def _scatter(compared: Comparison) -> Plot | None:
    pairs = np.array(
        [
            (task.reward_before, task.reward_after)
            for task in compared.per_task.values()
            if task.reward_before is not None and task.reward_after is not None
        ]
    ).reshape(-1, 2)
    if len(pairs) < 2:
        return None
    low, high = float(pairs.min()), float(pairs.max())
    edge = 0.05 * (high - low or 1.0)
    ends = (low - edge, high + edge)
    with drawn(WIDTH, 4.2) as (figure, axes):
        if len(pairs) > POINTS:
            shown = axes.hexbin(
                pairs[:, 0], pairs[:, 1], gridsize=24, mincnt=1, bins="log", cmap="cividis"
            )
            figure.colorbar(shown, ax=axes, label="tasks", shrink=0.7, format=_whole)
        else:
            _points(axes, pairs)
        axes.plot(
            [low - edge, high + edge], [low - edge, high + edge], color=ORANGE, linestyle="--"
        )
        axes.set(
            xlabel=f"mean reward, {_short(compared.before)}",
            ylabel=f"mean reward, {_short(compared.after)}",
            aspect="equal",
            xlim=ends,
            ylim=ends,
        )
    return plot(
        figure,
        "scatter",
        "The tasks in the one run and in the other. Above the dashed line the second run has the "
        "higher reward. The larger a point or the brighter a field, the more tasks there are.",
    )


def _whole(count: float, _: object) -> str:
    return f"{count:,.0f}"


def _points(axes: Axes, pairs: np.ndarray) -> None:
    places, counts = np.unique(pairs, axis=0, return_counts=True)
    axes.scatter(
        places[:, 0], places[:, 1], s=24 * np.sqrt(counts), color=BLUE, alpha=0.7, linewidth=0
    )


def _short(name: str) -> str:
    """Abbreviate a name in the middle, because names often differ at the end."""
    name = " ".join(name.split())
    if len(name) <= LONGEST_NAME:
        return name
    half = (LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
