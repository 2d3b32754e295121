"""Technical indicators, by their authors' formulas, for all stocks at once.

Arrays have the shape (days, stocks). The value of a day depends only on that day and earlier ones.
If a formula would divide by 0, the value is the indicator's middle: 50 for an RSI, else 0.
Smoothing starts with the first day, with weights of the available days, as in pandas'
``ewm(adjust=True)``, which stockstats and so FinRL's own preprocessing use.

Sources: MACD, Appel 1979; RSI, DX and the smoothing of both, Wilder 1978, "New Concepts in
Technical Trading Systems"; CCI, Lambert 1980; Bollinger bands, Bollinger 2001; turbulence,
Kritzman and Li 2010, "Skulls, Financial Turbulence, and Risk Management".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "COMPUTED",
    "TURBULENCE_DAYS",
    "Bars",
    "FloatArray",
    "indicator",
    "needs_highs_and_lows",
    "turbulence",
]

FloatArray: TypeAlias = npt.NDArray[np.float64]

COMPUTED = "macd, boll_ub, boll_lb, rsi_N, cci_N, dx_N, close_N_sma"
"""The names that `indicator` can compute, where N is a number of days."""

TURBULENCE_DAYS = 252

_FULL_SCALE = 100.0


class Bars(NamedTuple):
    """The prices of some days, each of the shape (days, stocks)."""

    high: FloatArray
    low: FloatArray
    close: FloatArray


def indicator(name: str, bars: Bars) -> FloatArray | None:
    """Compute an indicator, or return None for a name that is not in `COMPUTED`."""
    found = _parse(name)
    if found is None:
        return None
    formula, days = found
    return formula(bars, days)


def needs_highs_and_lows(name: str) -> bool | None:
    """Return whether an indicator needs more than closes, or None if it cannot be computed."""
    found = _parse(name)
    return None if found is None else found[0] in (_cci, _dx)


def turbulence(close: FloatArray) -> FloatArray:
    """Compute how unusual each day's returns are, given the 252 days before; shape (days,).

    The measure is the squared Mahalanobis distance of the returns from their mean. It is 0 for the
    first 252 days.
    """
    returns = close[1:] / close[:-1] - 1
    values = np.zeros(len(close))
    for day in range(TURBULENCE_DAYS, len(close)):
        # returns[day - 1] is the return of `day`; the first day has none.
        past = returns[max(0, day - 1 - TURBULENCE_DAYS) : day - 1]
        centered = past - past.mean(axis=0)
        covariance = centered.T @ centered / (len(past) - 1)
        today = returns[day - 1] - past.mean(axis=0)
        values[day] = today @ np.linalg.pinv(covariance) @ today
    return values


_Formula: TypeAlias = Callable[[Bars, int], FloatArray]


def _macd(bars: Bars, days: int) -> FloatArray:
    return _smooth(bars.close, 2 / 13) - _smooth(bars.close, 2 / 27)


def _upper_band(bars: Bars, days: int) -> FloatArray:
    return _mean(bars.close, days) + 2 * _deviation(bars.close, days)


def _lower_band(bars: Bars, days: int) -> FloatArray:
    return _mean(bars.close, days) - 2 * _deviation(bars.close, days)


def _simple_average(bars: Bars, days: int) -> FloatArray:
    return _mean(bars.close, days)


def _rsi(bars: Bars, days: int) -> FloatArray:
    change = np.diff(bars.close, axis=0, prepend=bars.close[:1])
    up = _smooth(np.maximum(change, 0.0), 1 / days)
    down = _smooth(np.maximum(-change, 0.0), 1 / days)
    return _FULL_SCALE * _divide(up, up + down, otherwise=0.5)


def _cci(bars: Bars, days: int) -> FloatArray:
    typical = (bars.high + bars.low + bars.close) / 3
    windows = _windows(typical, days)
    mean = np.nanmean(windows, axis=-1)
    spread = np.abs(windows - mean[..., None]).mean(axis=-1)  # NaN until there are enough days
    return _divide(typical - mean, 0.015 * np.nan_to_num(spread), otherwise=0.0)


def _dx(bars: Bars, days: int) -> FloatArray:
    rise = np.diff(bars.high, axis=0, prepend=bars.high[:1])
    fall = -np.diff(bars.low, axis=0, prepend=bars.low[:1])
    up = _smooth(np.where((rise > 0) & (rise > fall), rise, 0.0), 1 / days)
    down = _smooth(np.where((fall > 0) & (fall > rise), fall, 0.0), 1 / days)
    # The average true range, by which both are divided, cancels out.
    return _FULL_SCALE * _divide(np.abs(up - down), up + down, otherwise=0.0)


_FORMULAS: dict[str, tuple[_Formula, int]] = {
    "macd": (_macd, 26),
    "boll_ub": (_upper_band, 20),
    "boll_lb": (_lower_band, 20),
}
_FORMULAS_OF_DAYS: dict[str, _Formula] = {
    r"rsi_([1-9]\d{0,3})": _rsi,
    r"cci_([1-9]\d{0,3})": _cci,
    r"dx_([1-9]\d{0,3})": _dx,
    r"close_([1-9]\d{0,3})_sma": _simple_average,
}


def _parse(name: str) -> tuple[_Formula, int] | None:
    if name in _FORMULAS:
        return _FORMULAS[name]
    for pattern, formula in _FORMULAS_OF_DAYS.items():
        match = re.fullmatch(pattern, name)
        if match:
            return formula, int(match[1])
    return None


def _smooth(values: FloatArray, weight: float) -> FloatArray:
    """Compute the exponential average in which a day counts `weight`, and earlier days the rest."""
    kept, total, span = 1 - weight, values, 1
    while span < len(values):  # each pass doubles the number of days in the sum
        longer = total.copy()
        longer[span:] += kept**span * total[:-span]
        total, span = longer, 2 * span
    weights = (1 - kept ** np.arange(1, len(values) + 1)) / weight
    result: FloatArray = total / weights[:, None]
    return result


def _windows(values: FloatArray, days: int) -> FloatArray:
    """Return the last `days` values up to each day on a new last axis; NaN before the first day."""
    padding = np.full((days - 1, *values.shape[1:]), np.nan)
    padded = np.concatenate((padding, values))
    return np.lib.stride_tricks.sliding_window_view(padded, days, axis=0)


def _mean(values: FloatArray, days: int) -> FloatArray:
    mean: FloatArray = np.nanmean(_windows(values, days), axis=-1)
    return mean


def _deviation(values: FloatArray, days: int) -> FloatArray:
    """Compute the standard deviation (n - 1) of the last `days` values; 0 on the first day."""
    windows = _windows(values, days)
    squares = np.nansum((windows - _mean(values, days)[..., None]) ** 2, axis=-1)
    counts = np.minimum(np.arange(1, len(values) + 1), days)[:, None]
    deviation: FloatArray = np.sqrt(squares / np.maximum(counts - 1, 1))
    return deviation


def _divide(numerator: FloatArray, denominator: FloatArray, *, otherwise: float) -> FloatArray:
    result = np.full_like(numerator, otherwise)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result
