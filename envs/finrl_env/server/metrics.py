"""Metrics of a portfolio, from its daily values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..models import FinRLMetrics
from .indicators import FloatArray
from .trading import Book

__all__ = ["TRADING_DAYS_A_YEAR", "compute_equal_weight_value", "measure"]

TRADING_DAYS_A_YEAR = 252


def measure(values: Sequence[float], closes: FloatArray, book: Book) -> FinRLMetrics:
    """Compute the metrics.

    Args:
        values: The portfolio's value on each day so far.
        closes: The prices of these days, of the shape (days, stocks).
        book: The trader's book.
    """
    array = np.asarray(values, dtype=np.float64)
    return FinRLMetrics(
        total_return=float(array[-1] / array[0] - 1),
        market_return=float(compute_equal_weight_value(closes)[-1] - 1),
        sharpe=_sharpe(array),
        max_drawdown=float(np.max(1 - array / np.maximum.accumulate(array))),
        turnover=book.traded / float(array.mean()),
        costs=book.costs,
        trades=book.trades,
    )


def compute_equal_weight_value(closes: FloatArray) -> FloatArray:
    """Compute the daily value of one unit of money that is held in equal parts of all stocks."""
    held: FloatArray = (closes / closes[0]).mean(axis=1)
    return held


def _sharpe(values: FloatArray) -> float | None:
    """Compute the annual ratio of Sharpe 1994, with a riskless rate of 0."""
    returns = values[1:] / values[:-1] - 1
    if len(returns) < 2:
        return None
    deviation = float(returns.std(ddof=1))
    if deviation == 0:
        return None
    return math.sqrt(TRADING_DAYS_A_YEAR) * float(returns.mean()) / deviation
