"""Actions, observations and state of the FinRL environment."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, Private, State

__all__ = ["FinRLAction", "FinRLMetrics", "FinRLObservation", "FinRLState", "FinRLTask"]


class FinRLAction(Action):
    """The orders of one day."""

    actions: list[float] = Field(
        description="One number per stock, in the order of the tickers: the fraction of hmax "
        "shares to buy (above 0) or to sell (below 0), cut to whole shares. Values beyond -1 and 1 "
        "trade more than hmax."
    )


class FinRLObservation(Observation):
    """The market and the portfolio on one day.

    `reward` is 0.0 after `reset`. After a step, it is the change of the portfolio's value from one
    day to the next, including costs, times the reward scaling. `metadata` has the `tickers` after
    `reset`, the shares `traded` after a step (negative for sales), and the `metrics` at the end.
    """

    state: list[float] = Field(
        description="Cash; the close of each stock; the shares held of each; then, for each "
        "indicator in turn, its value for each stock."
    )
    portfolio_value: float = Field(
        default=0.0, description="Cash plus shares held times their close, in money."
    )
    date: str = Field(default="", description="The day, as the data write it.")


class FinRLMetrics(BaseModel):
    """The results of an episode so far: fractions, and money in the currency of the prices."""

    model_config = ConfigDict(extra="forbid")

    total_return: float = Field(
        default=0.0, description="Gain or loss of the portfolio, as a fraction of its first value."
    )
    market_return: float = Field(
        default=0.0,
        description="The return of equal parts of every stock, bought on the first day and held, "
        "without costs.",
    )
    sharpe: float | None = Field(
        default=None,
        description="Mean over standard deviation (n - 1) of the daily returns, times the square "
        "root of 252; null with fewer than two of them, or if all are equal.",
    )
    max_drawdown: float = Field(
        default=0.0, description="The largest fall of the value below an earlier one, 0 to 1."
    )
    turnover: float = Field(
        default=0.0, description="Money of purchases and sales, over the portfolio's mean value."
    )
    costs: float = Field(default=0.0, description="Money paid for trading.")
    trades: int = Field(
        default=0, ge=0, description="Orders that traded at least a part of a share."
    )


class FinRLState(State):
    """The state of the episode. `step_count` counts the steps since `reset`."""

    day: int = Field(default=0, ge=0, description="The day of the episode, from 0.")
    days: int = Field(default=0, ge=0, description="The number of days of the episode.")
    date: str = Field(default="", description="The day, as the data write it.")
    tickers: list[str] = Field(default_factory=list, description="The stocks, in their order.")
    tech_indicators: list[str] = Field(
        default_factory=list, description="The indicators, in their order."
    )
    cash: float = Field(default=0.0, description="Money not invested.")
    holdings: list[float] = Field(default_factory=list, description="Shares held of each stock.")
    portfolio_value: float = Field(
        default=0.0, description="Cash plus shares held times their close, in money."
    )
    metrics: FinRLMetrics = Field(
        default_factory=FinRLMetrics, description="The results of the episode so far."
    )
    market: Annotated[str, Private] = Field(
        default="", description="The market; hidden from the agent, because it reveals the future."
    )
    task_id: Annotated[str | None, Private] = Field(
        default=None, description="The id of the running task, if any."
    )


class FinRLTask(BaseModel):
    """A window of days of a synthetic market that is the same on every server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(description="The id: split/market/number/start.")
    split: str = Field(description="train or test; they share no market.")
    market: str = Field(description="The regime of the market.")
    number: int = Field(ge=0, description="The market's index in its split and regime, from 0.")
    start: int = Field(ge=0, description="The market's day on which the episode starts, from 0.")
    days: int = Field(gt=1, description="The number of days of the episode.")
    stocks: int = Field(gt=0, description="The number of stocks, and of numbers in an action.")
