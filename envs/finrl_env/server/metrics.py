"""How well a portfolio did, from its values day by day."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..models import FinRLMetrics
from .indicators import FloatArray
from .trading import Book

__all__ = ["TRADING_DAYS_A_YEAR", "held_in_equal_parts", "measure"]

TRADING_DAYS_A_YEAR = 252


def measure(values: Sequence[float], closes: FloatArray, book: Book) -> FinRLMetrics:
    """Work out the metrics.

    Args:
        values: The portfolio's value on each day so far.
        closes: The prices of these days, of the shape (days, stocks).
        book: The trader's.
    """
    array = np.asarray(values, dtype=np.float64)
    return FinRLMetrics(
        total_return=float(array[-1] / array[0] - 1),
        market_return=float(held_in_equal_parts(closes)[-1] - 1),
        sharpe=_sharpe(array),
        max_drawdown=float(np.max(1 - array / np.maximum.accumulate(array))),
        turnover=book.traded / float(array.mean()),
        costs=book.costs,
        trades=book.trades,
    )


def held_in_equal_parts(closes: FloatArray) -> FloatArray:
    """What one unit of money becomes, day by day, in equal parts of each stock that are held."""
    held: FloatArray = (closes / closes[0]).mean(axis=1)
    return held


def _sharpe(values: FloatArray) -> float | None:
    """The ratio of Sharpe 1994, a year, with nothing taken off for a riskless rate."""
    returns = values[1:] / values[:-1] - 1
    if len(returns) < 2:
        return None
    deviation = float(returns.std(ddof=1))
    if deviation == 0:
        return None
    return math.sqrt(TRADING_DAYS_A_YEAR) * float(returns.mean()) / deviation
