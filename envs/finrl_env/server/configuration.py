"""The configuration of a server, from the file that FINRL_CONFIG_PATH names."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .market import Market, did_you_mean
from .synthetic import REGIMES, sine_market
from .tables import make_table_market, read_table
from .trading import Rules

__all__ = [
    "CONFIG_PATH",
    "INDICATORS",
    "MAX_RANDOM_MARKET_DAYS",
    "MARKETS",
    "Configuration",
    "Described",
    "Setup",
    "described",
    "read_setup",
    "make_setup",
]

logger = logging.getLogger(__name__)

CONFIG_PATH = "FINRL_CONFIG_PATH"

MARKETS = ("sine", *REGIMES)
"""The markets that need no data."""

MAX_RANDOM_MARKET_DAYS = 10_000

INDICATORS = ("macd", "rsi_30", "cci_30", "dx_30")

_Money = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Cost = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Configuration(BaseModel):
    """The keys of a configuration file, which are all optional.

    The first part are the arguments of FinRL's `StockTradingEnv`. A list has one entry per stock; a
    single number holds for all stocks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_path: str | None = Field(
        default=None, description="A CSV or Parquet file, relative to the working directory."
    )
    stock_dim: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="The number of stocks; by default that of the data, else 1."
    )
    hmax: float = Field(
        default=100, gt=0, allow_inf_nan=False, description="Shares that an action of 1 trades."
    )
    initial_amount: _Money = Field(default=100_000, description="Money at the start.")
    num_stock_shares: list[_Money] | _Money = Field(default=0, description="Shares at the start.")
    buy_cost_pct: list[_Cost] | _Cost = Field(
        default=0.001, description="Commission on purchases, as a fraction."
    )
    sell_cost_pct: list[_Cost] | _Cost = Field(
        default=0.001, description="Commission on sales, as a fraction."
    )
    reward_scaling: _Finite = Field(
        default=1e-4, description="The reward of a gain of one unit of money."
    )
    tech_indicator_list: list[str] = Field(
        default_factory=lambda: list(INDICATORS), description="The indicators, in their order."
    )
    state_space: int | None = Field(
        default=None, description="Numbers in a state; only compared with the computed number."
    )
    action_space: int | None = Field(
        default=None, description="Numbers in an action; only compared with the number of stocks."
    )
    turbulence_threshold: _Finite | None = Field(
        default=None, description="The risk at and above which everything is sold."
    )
    risk_indicator_col: str = Field(default="turbulence", description="The measure of risk.")
    initial: bool = Field(
        default=True, description="Start with initial_amount, not with previous_state."
    )
    previous_state: list[_Finite] = Field(
        default_factory=list, description="A state to take cash and shares from."
    )

    market: str = Field(
        default="sine", description="The market without data_path: a name of MARKETS."
    )
    market_days: int = Field(
        default=252, ge=2, le=MAX_RANDOM_MARKET_DAYS, description="Days of a random market."
    )
    max_gap_days: Annotated[float, Field(gt=0, le=36_500)] | None = Field(
        default=None, description="The longest time between two days of the data."
    )
    idle_last_step: bool = Field(
        default=True,
        description="Whether one step follows the last day, which repeats the last reward, as in "
        "FinRL. Without it, the rewards add up to the gain.",
    )

    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset(
        {"day", "iteration", "make_plots", "mode", "model_name", "print_verbosity"}
    )
    """Arguments of FinRL about its output and its files, which have no effect here."""


class Described(BaseModel):
    """The answer of ``GET /config``: the shape of an episode without a task."""

    stock_dim: int
    initial_amount: float
    action_space: int
    state_space: int
    tech_indicators: list[str]


@dataclass(frozen=True)
class Setup:
    """A checked configuration with its rules and its market.

    Attributes:
        config: The configuration.
        rules: The rules of an episode without a task.
        stocks: The number of stocks.
        market: The market of the data or the sine wave, which is always the same; None if the
            configuration chooses a random market.
    """

    config: Configuration
    rules: Rules
    stocks: int
    market: Market | None

    @property
    def market_name(self) -> str:
        """The name of the default market."""
        return self.config.market if self.market is None else self.market.name

    @property
    def risk_indicator(self) -> str | None:
        """The measure of risk, or None if there is no threshold."""
        return _risk_indicator(self.config)

    def described(self) -> Described:
        """Return the answer of ``GET /config``."""
        return Described(
            stock_dim=self.stocks,
            initial_amount=self.config.initial_amount,
            action_space=self.stocks,
            state_space=_state_space(self.config, self.stocks),
            tech_indicators=list(self.config.tech_indicator_list),
        )


def described() -> Described:
    """Describe the configuration that the environment variable names."""
    return read_setup().described()


def read_setup() -> Setup:
    """Read the configuration that FINRL_CONFIG_PATH names, once, or return the default.

    Raises:
        ValueError: The configuration or its data cannot be used; the message says why.
    """
    return _read_setup_file(os.environ.get(CONFIG_PATH) or "")


@lru_cache(maxsize=8)
def _read_setup_file(path: str) -> Setup:
    if not path:
        return make_setup({})
    try:
        keys = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{CONFIG_PATH}={path} cannot be read as JSON: {error}") from error
    if not isinstance(keys, dict):
        raise ValueError(f"{CONFIG_PATH}={path} must hold a JSON object, not {keys!r:.50}")
    try:
        return make_setup(keys)
    except ValueError as error:
        raise ValueError(f"{CONFIG_PATH}={path}: {error}") from error


def make_setup(keys: dict[str, Any]) -> Setup:
    """Check a configuration and read its data.

    Args:
        keys: The keys of `Configuration`.

    Raises:
        ValueError: The configuration or its data cannot be used; the message says why.
    """
    config = _check_keys(keys)
    if config.data_path is None and config.market not in MARKETS:
        raise ValueError(
            f"market: there is none called {config.market!r}{did_you_mean(config.market, MARKETS)}"
        )
    market = _find_fixed_market(config)
    stocks = (config.stock_dim or 1) if market is None else len(market.tickers)
    _compare("stock_dim", config.stock_dim, stocks)
    _compare("action_space", config.action_space, stocks)
    _compare("state_space", config.state_space, _state_space(config, stocks))
    return Setup(config, _rules(config, stocks), stocks, market)


def _check_keys(keys: dict[str, Any]) -> Configuration:
    known = list(Configuration.model_fields)
    for name in keys:
        if name not in known and name not in Configuration.WITHOUT_EFFECT:
            raise ValueError(f"unknown key {name!r}{did_you_mean(name, known)}")
    without_effect = sorted(Configuration.WITHOUT_EFFECT & keys.keys())
    if without_effect:
        logger.warning("the configuration's %s have no effect here", ", ".join(without_effect))
    kept = {name: value for name, value in keys.items() if name in known}
    try:
        return Configuration.model_validate(kept)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg']}, not {first['input']!r:.80}") from None


def _find_fixed_market(config: Configuration) -> Market | None:
    risk = _risk_indicator(config)
    if config.data_path is not None:
        gap = None if config.max_gap_days is None else timedelta(days=config.max_gap_days)
        table = read_table(Path(config.data_path))
        return make_table_market(table, config.tech_indicator_list, risk, gap)
    if config.market == "sine":
        return sine_market(config.stock_dim or 1, config.tech_indicator_list, risk)
    return None


def _risk_indicator(config: Configuration) -> str | None:
    return None if config.turbulence_threshold is None else config.risk_indicator_col


def _state_space(config: Configuration, stocks: int) -> int:
    return 1 + 2 * stocks + len(config.tech_indicator_list) * stocks


def _compare(name: str, given: int | None, right: int) -> None:
    if given is not None and given != right:
        raise ValueError(f"{name}: it is {right} by the data and the indicators, not {given}")


def _rules(config: Configuration, stocks: int) -> Rules:
    cash = config.initial_amount
    holdings = _expand_per_stock("num_stock_shares", config.num_stock_shares, stocks)
    if not config.initial:
        cash, holdings = _read_previous_state(config.previous_state, stocks)
    if cash <= 0 and not any(holdings):
        raise ValueError("initial_amount: 0, and no shares: there is nothing to trade with")
    return Rules(
        hmax=config.hmax,
        cash=cash,
        holdings=holdings,
        buy_costs=_expand_per_stock("buy_cost_pct", config.buy_cost_pct, stocks),
        sell_costs=_expand_per_stock("sell_cost_pct", config.sell_cost_pct, stocks),
        reward_scaling=config.reward_scaling,
        turbulence_threshold=config.turbulence_threshold,
        idle_last_step=config.idle_last_step,
    )


def _expand_per_stock(name: str, given: list[float] | float, stocks: int) -> tuple[float, ...]:
    if not isinstance(given, list):
        return (float(given),) * stocks
    if len(given) != stocks:
        raise ValueError(f"{name}: {len(given)} numbers for {stocks} stocks")
    return tuple(given)


def _read_previous_state(state: list[float], stocks: int) -> tuple[float, tuple[float, ...]]:
    """Return the cash and the shares of an earlier state, for `initial: false`."""
    if len(state) < 1 + 2 * stocks:
        raise ValueError(
            f"previous_state: {len(state)} numbers, but cash, prices and shares of {stocks} stocks "
            f"are {1 + 2 * stocks} or more"
        )
    cash, holdings = state[0], state[1 + stocks : 1 + 2 * stocks]
    if min(cash, *holdings) < 0:
        raise ValueError(f"previous_state: cash {cash:g} and shares {holdings} must not be below 0")
    return cash, tuple(holdings)
