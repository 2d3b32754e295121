"""The rules of trading, and the books of one trader.

They are those of FinRL's environment for stock trading (Liu et al. 2020, arXiv:2011.09607; Liu et
al. 2021, arXiv:2111.09395): whole shares, a commission on either side, no short positions, no
debts, every order filled at the day's close. The largest sale goes first and the smallest
purchase last, so what is sold can be spent on the same day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Book", "Rules", "trade"]


@dataclass(frozen=True)
class Rules:
    """What holds throughout an episode.

    Attributes:
        hmax: Shares that an action of 1 buys and one of -1 sells.
        cash: Money at the beginning.
        holdings: Shares of each stock at the beginning.
        buy_costs: The commission of each stock, as a fraction of the price.
        sell_costs: Likewise, of sales.
        reward_scaling: What a gain of one unit of money is worth as a reward.
        turbulence_threshold: The risk from which on everything is sold; None for no such rule.
        idle_last_step: Whether one step follows the last day, in which nothing is traded.
    """

    hmax: float
    cash: float
    holdings: tuple[float, ...]
    buy_costs: tuple[float, ...]
    sell_costs: tuple[float, ...]
    reward_scaling: float
    turbulence_threshold: float | None
    idle_last_step: bool


@dataclass
class Book:
    """What a trader has, and what trading has come to.

    Attributes:
        cash: Money not invested.
        holdings: Shares of each stock.
        costs: Commissions paid so far, in money.
        traded: Money bought and sold for so far, without commissions.
        trades: Orders so far of which a share was filled.
    """

    cash: float
    holdings: list[float]
    costs: float = 0.0
    traded: float = 0.0
    trades: int = 0

    def value(self, prices: Sequence[float]) -> float:
        """Cash and shares at these prices, in money."""
        return self.cash + sum(p * held for p, held in zip(prices, self.holdings, strict=True))

    def sell(self, stock: int, shares: float, price: float, cost: float) -> float:
        """Sell as many of `shares` as are held, and return how many were sold."""
        sold = min(shares, self.holdings[stock])
        if sold > 0:
            self.cash += price * sold * (1 - cost)
            self.holdings[stock] -= sold
            self._note(price * sold, cost)
        return sold

    def buy(self, stock: int, shares: float, price: float, cost: float) -> float:
        """Buy as many of `shares` as can be paid for, and return how many were bought."""
        bought = min(shares, self.cash // (price * (1 + cost)))
        if bought > 0:
            self.cash -= price * bought * (1 + cost)
            self.holdings[stock] += bought
            self._note(price * bought, cost)
        return bought

    def _note(self, money: float, cost: float) -> None:
        self.costs += money * cost
        self.traded += money
        self.trades += 1


def trade(
    book: Book,
    actions: Sequence[float],
    prices: Sequence[float],
    tradable: Sequence[bool],
    rules: Rules,
    *,
    turbulent: bool,
) -> list[float]:
    """Carry out the orders of one day.

    Args:
        book: The trader's, which is changed.
        actions: For each stock, the fraction of `hmax` to buy, or below 0 to sell.
        prices: The closes.
        tradable: Whether a stock is traded that day.
        rules: The commissions and `hmax`.
        turbulent: Sell everything instead, of every stock, tradable or not.

    Returns:
        The shares that were traded of each stock, negative where sold.
    """
    if turbulent:
        return [
            0.0 - book.sell(stock, math.inf, price, rules.sell_costs[stock])
            for stock, price in enumerate(prices)
        ]
    with np.errstate(over="ignore"):  # an infinite order is one for all that can be had
        orders = np.trunc(np.asarray(actions, dtype=np.float64) * rules.hmax)
    by_size = np.argsort(orders, kind="stable").tolist()
    traded = [0.0] * len(prices)
    for stock in by_size:
        if orders[stock] < 0 and tradable[stock]:
            shares, cost = -float(orders[stock]), rules.sell_costs[stock]
            traded[stock] -= book.sell(stock, shares, prices[stock], cost)
    for stock in reversed(by_size):
        if orders[stock] > 0 and tradable[stock]:
            shares, cost = float(orders[stock]), rules.buy_costs[stock]
            traded[stock] += book.buy(stock, shares, prices[stock], cost)
    return traded
