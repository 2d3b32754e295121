"""The rules of trading, and the book of one trader.

The rules are those of FinRL's environment for stock trading (Liu et al. 2020, arXiv:2011.09607; Liu
et al. 2021, arXiv:2111.09395): whole shares, a commission on purchases and sales, no short
positions, no debts, and every order filled at the day's close. The largest sale goes first and the
smallest purchase last, so the proceeds of a day can be spent on the same day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Book", "Rules", "trade"]


@dataclass(frozen=True)
class Rules:
    """The rules of an episode.

    Attributes:
        hmax: Shares that an action of 1 buys and an action of -1 sells.
        cash: Money at the start.
        holdings: Shares of each stock at the start.
        buy_costs: The commission on purchases of each stock, as a fraction of the price.
        sell_costs: The commission on sales of each stock, as a fraction of the price.
        reward_scaling: The reward of a gain of one unit of money.
        turbulence_threshold: The risk at and above which everything is sold, or None.
        idle_last_step: Whether one step without trading follows the last day.
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
    """The book of a trader: money, shares, and the sums of trading.

    Attributes:
        cash: Money not invested.
        holdings: Shares of each stock.
        costs: Commissions paid so far, in money.
        traded: Money of purchases and sales so far, without commissions.
        trades: Orders so far that traded at least a part of a share.
    """

    cash: float
    holdings: list[float]
    costs: float = 0.0
    traded: float = 0.0
    trades: int = 0

    def value(self, prices: Sequence[float]) -> float:
        """Return the value of cash and shares at some prices, in money."""
        return self.cash + sum(p * held for p, held in zip(prices, self.holdings, strict=True))

    def sell(self, stock: int, shares: float, price: float, cost: float) -> float:
        """Sell at most `shares` of the held shares, and return the number sold."""
        sold = min(shares, self.holdings[stock])
        if sold > 0:
            self.cash += price * sold * (1 - cost)
            self.holdings[stock] -= sold
            self._note(price * sold, cost)
        return sold

    def buy(self, stock: int, shares: float, price: float, cost: float) -> float:
        """Buy at most `shares` that the cash can pay for, and return the number bought."""
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
        book: The trader's book, which is changed.
        actions: The fraction of `hmax` to buy of each stock, or below 0 to sell.
        prices: The closes.
        tradable: Whether each stock is traded that day.
        rules: The commissions and `hmax`.
        turbulent: Sell all shares of every stock instead, tradable or not.

    Returns:
        The traded shares of each stock, negative for sales.
    """
    if turbulent:
        return [
            0.0 - book.sell(stock, math.inf, price, rules.sell_costs[stock])
            for stock, price in enumerate(prices)
        ]
    with np.errstate(over="ignore"):  # an infinite order trades as much as possible
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
