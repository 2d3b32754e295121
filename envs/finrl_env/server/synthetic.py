"""Markets that are made up: a sine wave, and random ones that rise, fall, rest or crash.

A random market has one common factor and a part of each stock's own (Sharpe 1963), so stocks move
together. The size of both parts' daily shocks comes in clusters: GARCH(1,1), Bollerslev 1986. A
``mixed`` market changes its regime by a Markov chain, Hamilton 1989.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from .indicators import Bars, FloatArray
from .market import WARM_UP_DAYS, Market, market_of, trading_dates
from .metrics import TRADING_DAYS_A_YEAR

__all__ = ["REGIMES", "SINE_DAYS", "random_market", "sine_market"]

SINE_DAYS = 100

_SINE_LEVEL, _SINE_HEIGHT, _SINE_PERIOD_DAYS = 100.0, 10.0, 25
_SMALLEST_PRICE = 0.01
_DAILY_RANGE = 0.5  # of a day's volatility, by which highs and lows lie beyond the closes

# GARCH(1,1) with a mean of 1: today's variance is made of these parts of yesterday's squared
# shock and of yesterday's variance. Typical of daily returns of stocks.
_OF_SHOCK, _OF_VARIANCE = 0.15, 0.80


class _Weather(NamedTuple):
    """What the common factor does on a day."""

    drift: float  # a year, in logarithms
    volatility: float  # a year
    pull: float = 0.0  # a day, of its distance from where this weather began


_WEATHER = {
    "bull": _Weather(drift=0.25, volatility=0.12),
    "bear": _Weather(drift=-0.35, volatility=0.24),
    "sideways": _Weather(drift=0.0, volatility=0.12, pull=0.05),
    "falling": _Weather(drift=-6.0, volatility=0.60),
    "recovering": _Weather(drift=0.9, volatility=0.30),
}
_FALLING_DAYS, _RECOVERING_DAYS = 15, 40

# From one day to the next; the days of a regime are then about 60, of a crash 15.
_CHANGES = {
    "bull": {"bull": 0.984, "sideways": 0.008, "bear": 0.005, "falling": 0.003},
    "sideways": {"sideways": 0.984, "bull": 0.009, "bear": 0.005, "falling": 0.002},
    "bear": {"bear": 0.984, "sideways": 0.006, "bull": 0.007, "falling": 0.003},
    "falling": {"falling": 0.933, "recovering": 0.067},
    "recovering": {"recovering": 0.975, "bull": 0.015, "sideways": 0.010},
}


def sine_market(
    stocks: int, tech_indicators: Sequence[str], risk_indicator: str | None = None
) -> Market:
    """Make 100 days of a sine wave between 90 and 110, 25 days a period.

    Further stocks follow the first with a delay. Highs and lows are 1% beyond the close.

    Raises:
        Refused: An indicator cannot be computed.
    """
    day = np.arange(-WARM_UP_DAYS, SINE_DAYS)[:, None]
    delay = np.arange(stocks) / stocks
    close = _SINE_LEVEL + _SINE_HEIGHT * np.sin(2 * np.pi * (day / _SINE_PERIOD_DAYS - delay))
    bars = Bars(high=close * 1.01, low=close * 0.99, close=close)
    return market_of("sine", bars, tech_indicators, risk_indicator, trading_dates(SINE_DAYS))


def random_market(
    regime: str,
    entropy: Sequence[int],
    days: int,
    stocks: int,
    tech_indicators: Sequence[str],
    risk_indicator: str | None = None,
) -> Market:
    """Make a market at random; the same arguments always make the same one.

    Args:
        regime: One of `REGIMES`.
        entropy: What determines it: integers from 0.
        days: How many are shown.
        stocks: How many there are.
        tech_indicators: Names of the indicators, each computed.
        risk_indicator: ``turbulence``, or None for no measure of risk.

    Raises:
        Refused: An indicator cannot be computed.
    """
    rng = np.random.default_rng(np.random.SeedSequence(list(entropy)))
    weather = REGIMES[regime](days, rng)
    before = [weather[0]] * WARM_UP_DAYS
    bars = _bars([*before, *weather], stocks, rng)
    return market_of(regime, bars, tech_indicators, risk_indicator, trading_dates(days))


_Plan: TypeAlias = Callable[[int, np.random.Generator], list[_Weather]]


def _steady(name: str) -> _Plan:
    return lambda days, rng: [_WEATHER[name]] * days


def _crash(days: int, rng: np.random.Generator) -> list[_Weather]:
    """A bull market which falls for three weeks, somewhere in its middle half."""
    begin = int(rng.integers(days // 4, max(3 * days // 4, days // 4 + 1)))
    plan = [_WEATHER["bull"]] * begin
    plan += [_WEATHER["falling"]] * _FALLING_DAYS + [_WEATHER["recovering"]] * _RECOVERING_DAYS
    return (plan + [_WEATHER["bull"]] * days)[:days]


def _mixed(days: int, rng: np.random.Generator) -> list[_Weather]:
    names = [("bull", "bear", "sideways")[int(rng.integers(3))]]
    while len(names) < days:
        nexts = _CHANGES[names[-1]]
        names.append(str(rng.choice(list(nexts), p=list(nexts.values()))))
    return [_WEATHER[name] for name in names]


REGIMES: dict[str, _Plan] = {
    "bull": _steady("bull"),
    "bear": _steady("bear"),
    "sideways": _steady("sideways"),
    "crash": _crash,
    "mixed": _mixed,
}
"""What a market does each day, by the regime's name."""


def _bars(weather: Sequence[_Weather], stocks: int, rng: np.random.Generator) -> Bars:
    drift, volatility, pull = (np.array(column) for column in zip(*weather, strict=True))
    drift, volatility = drift / TRADING_DAYS_A_YEAR, volatility / np.sqrt(TRADING_DAYS_A_YEAR)
    beta = rng.uniform(0.7, 1.3, stocks)
    own_drift = rng.normal(0.0, 0.06, stocks) / TRADING_DAYS_A_YEAR
    own_volatility = rng.uniform(0.10, 0.22, stocks) / np.sqrt(TRADING_DAYS_A_YEAR)
    shocks = _clustered(rng.standard_normal((len(weather), 1 + stocks)))
    factor = _factor(drift + shocks[:, 0] * volatility, pull)
    moves = beta * factor[:, None] + own_drift + shocks[:, 1:] * own_volatility
    logarithm = np.cumsum(moves, axis=0)
    logarithm += np.log(rng.uniform(20.0, 200.0, stocks)) - logarithm[WARM_UP_DAYS]
    close = _in_cents(np.exp(logarithm))
    before = np.concatenate((close[:1], close[:-1]))
    beyond = np.abs(rng.standard_normal((2, *close.shape)))
    beyond *= _DAILY_RANGE * (beta * volatility[:, None] + own_volatility)
    return Bars(
        high=_in_cents(np.maximum(before, close) * np.exp(beyond[0])),
        low=_in_cents(np.minimum(before, close) * np.exp(-beyond[1])),
        close=close,
    )


def _clustered(shocks: FloatArray) -> FloatArray:
    """Give independent standard shocks, of the shape (days, series), a GARCH(1,1) volatility."""
    result = np.empty_like(shocks)
    variance = np.ones(shocks.shape[1])
    for day, shock in enumerate(shocks):
        result[day] = np.sqrt(variance) * shock
        variance = (1 - _OF_SHOCK - _OF_VARIANCE) + (
            _OF_SHOCK * result[day] ** 2 + _OF_VARIANCE * variance
        )
    return result


def _factor(moves: FloatArray, pull: FloatArray) -> FloatArray:
    """The daily moves of the common factor, drawn back to where it was where there is a pull."""
    result, distance = np.empty_like(moves), 0.0
    for day, move in enumerate(moves):
        result[day] = move - pull[day] * distance
        distance = distance + result[day] if pull[day] else 0.0
    return result


def _in_cents(prices: FloatArray) -> FloatArray:
    rounded: FloatArray = np.maximum(np.round(prices, 2), _SMALLEST_PRICE)
    return rounded
