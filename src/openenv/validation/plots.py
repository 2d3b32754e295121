"""Plots of a validation report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openenv._internal.reports.plots import BLUE, GREEN, GREY, ORANGE, Plot, drawn, plot, styled
from openenv.validation.report import CheckResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


CURVE = "learning.curve"
SIZE_INCHES = (6.4, 3.0)


def learning_plots(results: Sequence[CheckResult]) -> list[Plot]:
    """Plot a learner's rewards together with the rewards of a random policy."""
    curves = (result.measured.get("curve") for result in results if result.check_id == CURVE)
    with styled():
        return [
            _curve(curve) for curve in curves if isinstance(curve, Mapping) and [*_lines(curve)]
        ]


def _lines(curve: Mapping[str, Any]) -> Iterator[tuple[str, str, list[float], list[float]]]:
    for name, colour in (("learner", BLUE), ("random", ORANGE)):
        values = curve.get(name)
        if isinstance(values, Sequence) and values:
            episodes = curve.get("episodes")
            if not isinstance(episodes, Sequence) or len(episodes) != len(values):
                episodes = range(1, len(values) + 1)
            known = [(x, y) for x, y in zip(episodes, values, strict=True) if _is_number(y)]
            yield name, colour, [float(x) for x, _ in known], [float(y) for _, y in known]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _curve(curve: Mapping[str, Any]) -> Plot:
    with drawn(*SIZE_INCHES) as (figure, axes):
        _band(axes, curve)
        for name, colour, episodes, rewards in _lines(curve):
            axes.plot(episodes, rewards, color=colour, label=name, linewidth=1.8)
        _references(axes, curve)
        axes.set(xlabel="episodes", ylabel="reward of an episode")
        figure.legend(loc="outside upper right", ncols=4, frameon=False)
    return plot(
        figure,
        "learning",
        "What an episode was worth to a small learner as it went on, and to one that acts at "
        "random. An environment that teaches lifts the one above the other.",
    )


def _band(axes: Axes, curve: Mapping[str, Any]) -> None:
    episodes, low, high = (curve.get(name) for name in ("episodes", "low", "high"))
    if not (isinstance(episodes, Sequence) and isinstance(low, Sequence) and low):
        return
    if not isinstance(high, Sequence) or not len(episodes) == len(low) == len(high):
        return
    rows = [row for row in zip(episodes, low, high, strict=True) if all(map(_is_number, row))]
    places, lowest, highest = ([row[column] for row in rows] for column in range(3))
    axes.fill_between(places, lowest, highest, color=BLUE, alpha=0.18, linewidth=0)


def _references(axes: Axes, curve: Mapping[str, Any]) -> None:
    for name, words, colour in (("oracle", "oracle", GREEN), ("floor", "does nothing", GREY)):
        value = curve.get(name)
        if _is_number(value):
            axes.axhline(float(value), color=colour, linestyle="--", linewidth=1.2, label=words)  # type: ignore[arg-type]
