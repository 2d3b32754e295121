"""A market: the prices, indicators and risk of some days."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from openenv.errors import Refused

from .indicators import (
    COMPUTED,
    TURBULENCE_DAYS,
    Bars,
    FloatArray,
    indicator,
    turbulence,
)

__all__ = ["TURBULENCE", "WARM_UP_DAYS", "Market", "did_you_mean", "make_market", "trading_dates"]

TURBULENCE = "turbulence"
"""The only measure of risk that can be computed from prices."""

WARM_UP_DAYS = TURBULENCE_DAYS + 50
"""Hidden days at the start of generated markets, so that indicators have a history."""

_MAX_NAMED = 20


@dataclass(frozen=True, eq=False)
class Market:
    """Prices with indicators and risk.

    Attributes:
        name: The source of the prices: ``data``, ``sine`` or a regime.
        tickers: The stocks, in their order.
        dates: The days.
        tech_indicators: The indicators, in their order.
        close: Positive prices, of the shape (days, stocks).
        indicators: The indicators, of the shape (days, indicators, stocks).
        risk: The measure for a threshold, of the shape (days,), or None.
    """

    name: str
    tickers: tuple[str, ...]
    dates: tuple[str, ...]
    tech_indicators: tuple[str, ...]
    close: FloatArray
    indicators: FloatArray
    risk: FloatArray | None

    @cached_property
    def fingerprint(self) -> str:
        """A hash that is equal only for the same market."""
        digest = hashlib.sha256(repr((self.tickers, self.dates, self.tech_indicators)).encode())
        for array in (self.close, self.indicators, self.risk):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def make_market(
    name: str,
    bars: Bars,
    tech_indicators: Sequence[str],
    risk_indicator: str | None,
    dates: Sequence[str],
) -> Market:
    """Make a market from generated prices, and hide the first `WARM_UP_DAYS` days.

    Args:
        name: The name of the market.
        bars: The prices of the hidden and the shown days.
        tech_indicators: The names of the indicators to compute.
        risk_indicator: ``turbulence``, or None for no measure of risk.
        dates: The dates of the shown days.

    Raises:
        Refused: An indicator cannot be computed from prices.
    """
    shown = slice(WARM_UP_DAYS, None)
    computed = [_compute(one, bars)[shown] for one in tech_indicators]
    days, stocks = len(dates), bars.close.shape[1]
    return Market(
        name=name,
        tickers=tuple(f"S{number + 1}" for number in range(stocks)),
        dates=tuple(dates),
        tech_indicators=tuple(tech_indicators),
        close=bars.close[shown],
        indicators=np.stack(computed, axis=1) if computed else np.empty((days, 0, stocks)),
        risk=None if risk_indicator is None else _risk(risk_indicator, bars)[shown],
    )


def _compute(name: str, bars: Bars) -> FloatArray:
    values = indicator(name, bars)
    if values is None:
        raise Refused(
            f"the indicator {name!r} cannot be computed for a generated market; "
            f"those that can are {COMPUTED}"
        )
    return values


def _risk(name: str, bars: Bars) -> FloatArray:
    if name != TURBULENCE:
        raise Refused(
            f"risk_indicator_col={name!r}, but a generated market has no measure of risk other "
            f"than {TURBULENCE!r}"
        )
    return turbulence(bars.close)


def trading_dates(count: int) -> list[str]:
    """Return the first `count` weekdays from 2020 on, as dates of generated markets."""
    first = np.datetime64("2020-01-01")
    return [str(day) for day in np.busday_offset(first, np.arange(count), roll="forward")]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: a close match, or known names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    more = len(known) - _MAX_NAMED
    return f"; known are {', '.join(known[:_MAX_NAMED])}" + f" and {more} more" * (more > 0)
