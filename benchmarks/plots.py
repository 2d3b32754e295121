"""Plots of the measurements: small SVG files, one per part."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["draw_bars", "draw_league", "draw_lines"]

# Returns the figure of every round, by contender, number of sessions, and metric.
Values = Callable[[str, int, str], list[float]]

COLOURS = {"ours": "#1b6ca8", "public": "#c8553d", "bare": "#888888"}
OTHER = "#7a6a9b"
STYLES = ("-", "--", ":", "-.")


def _colour(name: str) -> str:
    return COLOURS.get(name.split()[0], OTHER)


def _figure(panels: int, height: float) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "openenv",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, panels, figsize=(3.4 * panels + 0.6, height), squeeze=False, layout="constrained"
    )
    return figure, list(axes[0])


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_lines(
    path: Path, names: list[str], points: list[int], panels: dict[str, str], values: Values
) -> None:
    """Draw a panel for each figure, over the number of sessions; bands show the range."""
    from matplotlib.ticker import LogLocator

    figure, axes = _figure(len(panels), 2.8)
    styles = {name: _style(name, names) for name in names}
    for panel, (metric, title) in zip(axes, panels.items(), strict=True):
        for name in names:
            rounds = {point: values(name, point, metric) for point in points}
            at = [point for point in points if rounds[point]]
            medians = [statistics.median(rounds[point]) for point in at]
            panel.plot(at, medians, styles[name], color=_colour(name), marker=".", label=name)
            least, most = ([end(rounds[point]) for point in at] for end in (min, max))
            panel.fill_between(at, least, most, color=_colour(name), alpha=0.2, linewidth=0)
        panel.set(title=title, xlabel="sessions", xscale="log", yscale="log")
        panel.set_xticks(points, [f"{point:,}" for point in points])
        panel.minorticks_off()
        least, most = panel.get_ylim()
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most / least < 300 else (1,)))
        panel.yaxis.set_major_formatter("{x:,.9g}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    _save(figure, path)


def _style(name: str, names: list[str]) -> str:
    """Return a line style; contenders of one side share a color, and differ in the dashes."""
    same = [other for other in names if other.split()[0] == name.split()[0]]
    return STYLES[same.index(name) % len(STYLES)]


def draw_bars(
    path: Path, names: list[str], sessions: int, metric: str, title: str, values: Values
) -> None:
    """Draw one figure of every contender as bars, with whiskers that show the range."""
    from matplotlib.ticker import MaxNLocator

    figure, (panel,) = _figure(1, 0.7 + 0.3 * len(names))
    medians = [statistics.median(values(name, sessions, metric)) for name in names]
    ends = [(min(found), max(found)) for name in names if (found := values(name, sessions, metric))]
    whiskers = [
        [median - least for median, (least, _) in zip(medians, ends, strict=True)],
        [most - median for median, (_, most) in zip(medians, ends, strict=True)],
    ]
    panel.barh(names, medians, xerr=whiskers, color=[_colour(name) for name in names], height=0.6)
    panel.invert_yaxis()
    panel.set(title=title)
    for name, (_, most), median in zip(names, ends, medians, strict=True):
        panel.annotate(f" {median:,.{0 if median >= 100 else 1}f}", (most, name), va="center")
    panel.margins(x=0.25)
    panel.xaxis.set_major_formatter("{x:,g}")
    panel.xaxis.set_major_locator(MaxNLocator(4))
    _save(figure, path)


def draw_league(path: Path, panels: dict[str, dict[str, list[float]]], unit: str) -> None:
    """Draw a panel for each workload, with a bar for every contender, on a logarithmic axis."""
    names = list(dict.fromkeys(name for rates in panels.values() for name in rates))
    figure, axes = _figure(len(panels), 0.9 + 0.3 * len(names))
    for panel, (title, rates) in zip(axes, panels.items(), strict=True):
        medians = [statistics.median(rates[n]) if rates.get(n) else 0 for n in names]
        panel.barh(names, medians, color=[_colour(name) for name in names], height=0.6)
        panel.invert_yaxis()
        panel.set(title=f"{title}, {unit}", xscale="log")
        panel.tick_params(axis="y", labelleft=panel is axes[0])
        for name, median in zip(names, medians, strict=True):
            if median:
                panel.annotate(f" {median:,.0f}", (median, name), va="center", fontsize=8)
        least, most = panel.get_xlim()
        panel.set_xlim(least, most * 6)
    _save(figure, path)
