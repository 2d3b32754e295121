"""Synthetic markets: a sine wave, and random markets that rise, fall, move sideways or crash.

A random market has one common factor and a part for each stock (Sharpe 1963), so stocks move
together. The volatility of the daily shocks is clustered: GARCH(1,1), Bollerslev 1986. A ``mixed``
market changes its regime by a Markov chain, Hamilton 1989.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from .indicators import Bars, FloatArray
from .market import WARM_UP_DAYS, Market, make_market, trading_dates
from .metrics import TRADING_DAYS_A_YEAR

__all__ = ["REGIMES", "SINE_DAYS", "random_market", "sine_market"]

SINE_DAYS = 100

_SINE_LEVEL, _SINE_HEIGHT, _SINE_PERIOD_DAYS = 100.0, 10.0, 25
_SMALLEST_PRICE = 0.01
_DAILY_RANGE = 0.5  # the spread of highs and lows beyond the closes, in daily volatilities

# GARCH(1,1) with a mean of 1: today's variance has these shares of yesterday's squared shock and of
# yesterday's variance. The values are typical of daily returns of stocks.
_SHOCK_WEIGHT, _VARIANCE_WEIGHT = 0.15, 0.80


class _Regime(NamedTuple):
    """The parameters of the common factor on a day."""

    drift: float  # per year, in logarithms
    volatility: float  # per year
    pull: float = 0.0  # per day, as a share of the distance from the start of this regime


_REGIME_DAYS = {
    "bull": _Regime(drift=0.25, volatility=0.12),
    "bear": _Regime(drift=-0.35, volatility=0.24),
    "sideways": _Regime(drift=0.0, volatility=0.12, pull=0.05),
    "falling": _Regime(drift=-6.0, volatility=0.60),
    "recovering": _Regime(drift=0.9, volatility=0.30),
}
_FALLING_DAYS, _RECOVERING_DAYS = 15, 40

# Probabilities from one day to the next. A regime then takes about 60 days, a crash 15.
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
    """Make 100 days of a sine wave between 90 and 110 with a period of 25 days.

    Further stocks follow the first with a delay. Highs and lows are 1% beyond the close.

    Raises:
        Refused: An indicator cannot be computed.
    """
    day = np.arange(-WARM_UP_DAYS, SINE_DAYS)[:, None]
    delay = np.arange(stocks) / stocks
    close = _SINE_LEVEL + _SINE_HEIGHT * np.sin(2 * np.pi * (day / _SINE_PERIOD_DAYS - delay))
    bars = Bars(high=close * 1.01, low=close * 0.99, close=close)
    return make_market("sine", bars, tech_indicators, risk_indicator, trading_dates(SINE_DAYS))


def random_market(
    regime: str,
    entropy: Sequence[int],
    days: int,
    stocks: int,
    tech_indicators: Sequence[str],
    risk_indicator: str | None = None,
) -> Market:
    """Make a random market; the same arguments always make the same market.

    Args:
        regime: One of `REGIMES`.
        entropy: Integers from 0 that determine the market.
        days: The number of shown days.
        stocks: The number of stocks.
        tech_indicators: The names of the indicators to compute.
        risk_indicator: ``turbulence``, or None for no measure of risk.

    Raises:
        Refused: An indicator cannot be computed.
    """
    rng = np.random.default_rng(np.random.SeedSequence(list(entropy)))
    plan = REGIMES[regime](days, rng)
    before = [plan[0]] * WARM_UP_DAYS
    bars = _bars([*before, *plan], stocks, rng)
    return make_market(regime, bars, tech_indicators, risk_indicator, trading_dates(days))


_Plan: TypeAlias = Callable[[int, np.random.Generator], list[_Regime]]


def _make_steady_plan(name: str) -> _Plan:
    return lambda days, rng: [_REGIME_DAYS[name]] * days


def _plan_crash(days: int, rng: np.random.Generator) -> list[_Regime]:
    """Plan a bull market that falls for three weeks, somewhere in its middle half."""
    begin = int(rng.integers(days // 4, max(3 * days // 4, days // 4 + 1)))
    plan = [_REGIME_DAYS["bull"]] * begin
    plan += [_REGIME_DAYS["falling"]] * _FALLING_DAYS + [
        _REGIME_DAYS["recovering"]
    ] * _RECOVERING_DAYS
    return (plan + [_REGIME_DAYS["bull"]] * days)[:days]


def _plan_mixed(days: int, rng: np.random.Generator) -> list[_Regime]:
    names = [("bull", "bear", "sideways")[int(rng.integers(3))]]
    while len(names) < days:
        nexts = _CHANGES[names[-1]]
        names.append(str(rng.choice(list(nexts), p=list(nexts.values()))))
    return [_REGIME_DAYS[name] for name in names]


REGIMES: dict[str, _Plan] = {
    "bull": _make_steady_plan("bull"),
    "bear": _make_steady_plan("bear"),
    "sideways": _make_steady_plan("sideways"),
    "crash": _plan_crash,
    "mixed": _plan_mixed,
}
"""Planners of a market's days, by the regime's name."""


def _bars(plan: Sequence[_Regime], stocks: int, rng: np.random.Generator) -> Bars:
    drift, volatility, pull = (np.array(column) for column in zip(*plan, strict=True))
    drift, volatility = drift / TRADING_DAYS_A_YEAR, volatility / np.sqrt(TRADING_DAYS_A_YEAR)
    beta = rng.uniform(0.7, 1.3, stocks)
    own_drift = rng.normal(0.0, 0.06, stocks) / TRADING_DAYS_A_YEAR
    own_volatility = rng.uniform(0.10, 0.22, stocks) / np.sqrt(TRADING_DAYS_A_YEAR)
    shocks = _cluster_volatility(rng.standard_normal((len(plan), 1 + stocks)))
    factor = _compute_factor(drift + shocks[:, 0] * volatility, pull)
    moves = beta * factor[:, None] + own_drift + shocks[:, 1:] * own_volatility
    logarithm = np.cumsum(moves, axis=0)
    logarithm += np.log(rng.uniform(20.0, 200.0, stocks)) - logarithm[WARM_UP_DAYS]
    close = _round_to_cents(np.exp(logarithm))
    before = np.concatenate((close[:1], close[:-1]))
    beyond = np.abs(rng.standard_normal((2, *close.shape)))
    beyond *= _DAILY_RANGE * (beta * volatility[:, None] + own_volatility)
    return Bars(
        high=_round_to_cents(np.maximum(before, close) * np.exp(beyond[0])),
        low=_round_to_cents(np.minimum(before, close) * np.exp(-beyond[1])),
        close=close,
    )


def _cluster_volatility(shocks: FloatArray) -> FloatArray:
    """Add a GARCH(1,1) volatility to independent standard shocks of the shape (days, series)."""
    result = np.empty_like(shocks)
    variance = np.ones(shocks.shape[1])
    for day, shock in enumerate(shocks):
        result[day] = np.sqrt(variance) * shock
        variance = (1 - _SHOCK_WEIGHT - _VARIANCE_WEIGHT) + (
            _SHOCK_WEIGHT * result[day] ** 2 + _VARIANCE_WEIGHT * variance
        )
    return result


def _compute_factor(moves: FloatArray, pull: FloatArray) -> FloatArray:
    """Compute the daily moves of the common factor, with its pull back to an earlier level."""
    result, distance = np.empty_like(moves), 0.0
    for day, move in enumerate(moves):
        result[day] = move - pull[day] * distance
        distance = distance + result[day] if pull[day] else 0.0
    return result


def _round_to_cents(prices: FloatArray) -> FloatArray:
    rounded: FloatArray = np.maximum(np.round(prices, 2), _SMALLEST_PRICE)
    return rounded
