"""Comparisons with FinRL 0.3.7 itself, step for step, and with the indicators that it computes.

FinRL and its packages are in a virtual environment of their own.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.venvs import python_of

from finrl_env.models import FinRLAction
from finrl_env.server.finrl_environment import FinRLEnvironment
from finrl_env.server.indicators import Bars, indicator
from finrl_env.server.synthetic import random_market

# The first test may have to install FinRL and pandas.
pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
PEERS = Path(__file__).parents[3] / ".peers"
PACKAGES = ("finrl==0.3.7", "gymnasium>=1.1", "matplotlib", "pandas", "stockstats==0.6.10")

DAYS = 120
HMAX = 1000
INDICATORS = ["macd", "rsi_30"]
RISK = 40.0


@pytest.fixture(scope="module")
def finrl_python() -> str:
    return python_of(PEERS / "finrl", *PACKAGES)


def run(python: str, script: str, wanted: Any) -> Any:
    done = subprocess.run(
        [python, str(HERE / script)],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_market(path: Path, stocks: int, seed: int) -> None:
    """Make a market whose prices jump and whose every fifth day is turbulent."""
    rng = np.random.default_rng(seed)
    market = random_market("mixed", [seed], DAYS, stocks, INDICATORS)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "tic", "close", *INDICATORS, "turbulence"])
        for day, date in enumerate(market.dates):
            risk = float(rng.uniform(0, RISK * 1.25))
            for stock, ticker in enumerate(market.tickers):
                jump = math.exp(rng.normal(0, 0.05))
                values = market.indicators[day, :, stock].tolist()
                if rng.random() < 0.05:
                    values[0] = 1.0  # the stock is not traded
                close = float(market.close[day, stock]) * jump
                writer.writerow([date, ticker, close, *values, risk])


def arguments_of(stocks: int, threshold: float | None, cash: float) -> dict[str, Any]:
    rng = np.random.default_rng(stocks)
    return {
        "stock_dim": stocks,
        "hmax": HMAX,
        "initial_amount": cash,
        # FinRL ignores the initial shares of a single stock.
        "num_stock_shares": [0] if stocks == 1 else rng.integers(0, 50, stocks).tolist(),
        "buy_cost_pct": rng.uniform(0, 0.01, stocks).tolist(),
        "sell_cost_pct": rng.uniform(0, 0.01, stocks).tolist(),
        "reward_scaling": 1e-4,
        "state_space": 1 + (2 + len(INDICATORS)) * stocks,
        "action_space": stocks,
        "tech_indicator_list": INDICATORS,
        "turbulence_threshold": threshold,
    }


def random_actions(stocks: int, seed: int) -> list[list[float]]:
    """Make one action for each day; some days trade little, some more than hmax.

    No two orders of a day have the same size, because FinRL would order them by NumPy's unstable
    sort.
    """
    rng = np.random.default_rng(seed)
    actions = []
    for _ in range(DAYS):
        sizes = rng.choice(rng.choice([40, 1000, 3000]), stocks, replace=False)
        orders = (sizes + 0.5) * rng.choice([-1, 1], stocks) / HMAX
        actions.append(orders.tolist())
    return actions


def play(config: dict[str, Any], actions: list[list[float]]) -> dict[str, Any]:
    env = FinRLEnvironment(config)
    seen = [env.reset()] + [env.step(FinRLAction(actions=action)) for action in actions]
    return {
        "states": [one.state for one in seen],
        "rewards": [one.reward for one in seen],
        "done": [one.done for one in seen],
        "costs": env.state.metrics.costs,
        "dates": [one.date for one in seen[:-1]],  # the idle step stays on the last day
        "values": [one.portfolio_value for one in seen[:-1]],
    }


@pytest.mark.parametrize("threshold", [None, RISK], ids=["calm", "turbulent"])
@pytest.mark.parametrize("stocks", [1, 2, 7, 30])
def test_episodes_are_those_of_finrl(
    finrl_python: str, tmp_path: Path, stocks: int, threshold: float | None
) -> None:
    """States, rewards and costs are equal to the last bit, values up to NumPy's order of sums."""
    episodes: list[dict[str, Any]] = []
    for seed, cash in enumerate([3_000, 50_000, 1_000_000]):
        path = tmp_path / f"market{seed}.csv"
        write_market(path, stocks, seed)
        arguments = arguments_of(stocks, threshold, cash)
        actions = random_actions(stocks, seed)
        episodes.append({"data_path": str(path), "arguments": arguments, "actions": actions})
    for episode, theirs in zip(
        episodes, run(finrl_python, "play_original.py", episodes), strict=True
    ):
        ours = play({"data_path": episode["data_path"], **episode["arguments"]}, episode["actions"])
        assert ours["done"] == theirs["done"] == [False] * DAYS + [True]
        assert ours["dates"] == theirs["dates"]
        for name in ("states", "rewards", "costs"):
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        np.testing.assert_allclose(ours["values"], theirs["values"], rtol=1e-14, atol=0)
        assert theirs["rewards"][-1] == theirs["rewards"][-2], "it does not repeat the last one"
        shares = np.array(theirs["states"])[:, 1 + stocks : 1 + 2 * stocks]
        assert len(np.unique(shares)) > 10, "hardly anything was traded"
        if threshold is not None:
            assert (shares[1:] == 0).all(axis=1).any(), "it was never turbulent"


NAMES = ["macd", "boll_ub", "boll_lb", "rsi_30", "cci_30", "dx_30", "close_30_sma", "close_60_sma"]


@pytest.mark.parametrize("regime", ["crash", "sideways"])
def test_the_indicators_are_those_of_stockstats(finrl_python: str, regime: str) -> None:
    """The tolerance is 1e-9. The first day is left out; stockstats has no Bollinger bands there."""
    close = random_market(regime, [3], 300, 2, []).close
    rng = np.random.default_rng(1)
    beyond = np.abs(rng.normal(0, 0.01, (2, *close.shape)))
    bars = Bars(high=close * (1 + beyond[0]), low=close * (1 - beyond[1]), close=close)
    stocks = [{n: getattr(bars, n)[:, stock].tolist() for n in Bars._fields} for stock in (0, 1)]
    theirs = run(finrl_python, "indicators_of_stockstats.py", {"stocks": stocks, "names": NAMES})
    for name in NAMES:
        ours = indicator(name, bars)
        assert ours is not None
        expected = np.transpose([prices[name] for prices in theirs])
        np.testing.assert_allclose(ours[1:], expected[1:], rtol=1e-9, atol=1e-9, err_msg=name)
