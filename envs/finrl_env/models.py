"""What crosses the wire between the FinRL environment and its client."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, Private, State

__all__ = ["FinRLAction", "FinRLMetrics", "FinRLObservation", "FinRLState", "FinRLTask"]


class FinRLAction(Action):
    """The orders of one day."""

    actions: list[float] = Field(
        description="One number a stock, in the order of the tickers: the fraction of hmax shares "
        "to buy (above 0) or to sell (below 0), cut to whole shares. Values beyond -1 and 1 trade "
        "more than hmax."
    )


class FinRLObservation(Observation):
    """What a trader sees of a day.

    `reward` is 0.0 after `reset`; after a step it is the change of the portfolio's value from one
    day to the next, costs included, times the reward scaling. `metadata` has the `tickers` after
    `reset`, the shares `traded` after a step (negative where sold), and the `metrics` at the end.
    """

    state: list[float] = Field(
        description="Cash; the close of each stock; the shares held of each; then, for each "
        "indicator in turn, its value for each stock."
    )
    portfolio_value: float = Field(
        default=0.0, description="Cash plus shares held times their close, in money."
    )
    date: str = Field(default="", description="The day, as the data name it.")


class FinRLMetrics(BaseModel):
    """How an episode went so far. Fractions, not percent; money in the currency of the prices."""

    model_config = ConfigDict(extra="forbid")

    total_return: float = Field(
        default=0.0, description="Gain or loss of the portfolio, as a fraction of its first value."
    )
    market_return: float = Field(
        default=0.0,
        description="That of equal parts of every stock, bought on the first day and "
        "held, without costs.",
    )
    sharpe: float | None = Field(
        default=None,
        description="Mean over standard deviation (n - 1) of the daily returns, times the square "
        "root of 252; null with fewer than two of them, or where all are equal.",
    )
    max_drawdown: float = Field(
        default=0.0, description="The deepest fall of the value below an earlier one, 0 to 1."
    )
    turnover: float = Field(
        default=0.0, description="Money bought and sold for, over the portfolio's mean value."
    )
    costs: float = Field(default=0.0, description="Money paid for trading.")
    trades: int = Field(default=0, ge=0, description="Orders of which a share was filled.")


class FinRLState(State):
    """Where the episode stands. `step_count` counts the steps since `reset`."""

    day: int = Field(default=0, ge=0, description="The day of the episode, from 0.")
    days: int = Field(default=0, ge=0, description="Days that the episode has.")
    date: str = Field(default="", description="The day, as the data name it.")
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
        default_factory=FinRLMetrics, description="How the episode went so far."
    )
    market: Annotated[str, Private] = Field(
        default="", description="Where the prices come from; the agent is not told what is coming."
    )
    task_id: Annotated[str | None, Private] = Field(
        default=None, description="The task that is played, if one is."
    )


class FinRLTask(BaseModel):
    """Some days of one synthetic market, which are the same for everybody."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(description="Names the task: split/market/number/start.")
    split: str = Field(description="train or test; they share no market.")
    market: str = Field(description="The regime of the market.")
    number: int = Field(ge=0, description="Which of the split's markets of this regime, from 0.")
    start: int = Field(ge=0, description="The market's day on which the episode begins, from 0.")
    days: int = Field(gt=1, description="Days that the episode has.")
    stocks: int = Field(gt=0, description="Stocks that there are, so numbers in an action.")
