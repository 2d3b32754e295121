"""The picture of a portfolio. Importing this module needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

__all__ = ["draw"]

_SIZE_INCHES, _DOTS_PER_INCH = (8.0, 4.8), 100
_MARGINS = {"left": 0.12, "right": 0.94, "bottom": 0.08, "top": 0.92, "hspace": 0.1}
_MOST_DATES = 6

# matplotlib is not thread-safe: all threads share its fonts and caches.
_drawing = Lock()


def draw(
    dates: Sequence[str],
    values: Sequence[float],
    market: Sequence[float],
    cash: Sequence[float],
    days: int,
) -> npt.NDArray[np.uint8]:
    """Draw the daily value of a portfolio.

    Args:
        dates: The days so far.
        values: The portfolio's value on each of these days, in money.
        market: The value of the same money in equal parts of each stock.
        cash: The money not invested.
        days: The number of days of the whole episode.

    Returns:
        A picture of the shape (480, 800, 3).
    """
    with _drawing:
        figure = Figure(figsize=_SIZE_INCHES, dpi=_DOTS_PER_INCH)
        canvas: Any = FigureCanvasAgg(figure)  # parts of the class have no types
        above, below = figure.subplots(
            2, 1, sharex=True, height_ratios=(3, 1), gridspec_kw=_MARGINS
        )
        _draw_values(above, values, market)
        _draw_invested(below, values, cash)
        _label_days(below, dates, days)
        canvas.draw()
        picture: npt.NDArray[np.uint8] = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        return picture


def _draw_values(axes: Axes, values: Sequence[float], market: Sequence[float]) -> None:
    marker = "o" if len(values) == 1 else ""
    axes.plot(market, color="0.6", linestyle="--", marker=marker, label="equal parts, held")
    axes.plot(values, color="tab:blue", marker=marker, label="portfolio")
    change = values[-1] / values[0] - 1
    axes.set_title(f"Portfolio {values[-1]:,.0f} ({change:+.1%})", loc="left")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:,.0f}"))
    axes.legend(loc="best", frameon=False)
    axes.grid(alpha=0.25)


def _draw_invested(axes: Axes, values: Sequence[float], cash: Sequence[float]) -> None:
    invested = 1 - np.asarray(cash) / np.asarray(values)
    axes.fill_between(range(len(invested)), invested, step="post", color="tab:blue", alpha=0.3)
    axes.set_ylim(0, 1)
    axes.set_ylabel("invested")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(alpha=0.25)


def _label_days(axes: Axes, dates: Sequence[str], days: int) -> None:
    axes.set_xlim(0, days - 1)
    count = min(len(dates), _MOST_DATES)
    shown = [int(day) for day in np.linspace(0, len(dates) - 1, count)]
    axes.set_xticks(shown, [str(dates[day]) for day in shown])
