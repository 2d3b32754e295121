"""Tests of the FinRL environment: trading, markets, data, tasks and stored episodes."""

from __future__ import annotations

import csv
import json
import math
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support import rewards
from support.servers import serving

import finrl_env
from finrl_env.client import FinRLEnv
from finrl_env.models import FinRLAction, FinRLObservation
from finrl_env.server.configuration import CONFIG_PATH, read_setup
from finrl_env.server.finrl_environment import FinRLEnvironment
from finrl_env.server.indicators import Bars, indicator, turbulence
from finrl_env.server.synthetic import REGIMES, random_market
from finrl_env.server.tasks import SPLITS, TASK_RULES
from finrl_env.server.trading import Book, Rules, trade
from openenv import ExecutionFailed, Refused
from openenv.testing import check_environment

INDICATORS = ["macd", "rsi_30", "cci_30", "dx_30"]


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_PATH, raising=False)


def act(env: FinRLEnvironment, *actions: float) -> FinRLObservation:
    return env.step(FinRLAction(actions=list(actions)))


def play(env: FinRLEnvironment, **arguments: Any) -> list[FinRLObservation]:
    """Play an episode to its end, with the same random actions each time."""
    choices = random.Random(5)
    seen = [env.reset(**arguments)]
    while not seen[-1].done:
        stocks = len(env.state.tickers)
        seen.append(act(env, *(choices.uniform(-1, 1) for _ in range(stocks))))
    return seen


def buy_all(observation: FinRLObservation) -> FinRLAction:
    return FinRLAction(actions=[0.1, 0.2, 0.3] if observation.state[0] > 1000 else [-1, -1, -1])


# ------------------------------------------------------------------ the contract


@pytest.mark.parametrize("market", ["sine", "mixed"])
def test_markets_keep_the_contract(market: str) -> None:
    def make() -> FinRLEnvironment:
        return FinRLEnvironment({"market": market, "stock_dim": 3, "market_days": 30})

    report = check_environment(make, actions=buy_all)
    assert not report.broken


def test_the_default_keeps_the_contract_to_its_end() -> None:
    actions = [FinRLAction(actions=[0.7]), FinRLAction(actions=[-0.2])]
    assert not check_environment(FinRLEnvironment, actions=actions, max_steps=120).broken


def test_the_default_is_a_sine_wave_of_one_stock() -> None:
    env = FinRLEnvironment()
    seen = play(env)
    assert len(seen) == 101
    prices = [one.state[1] for one in seen[:-1]]
    assert prices == pytest.approx([100 + 10 * math.sin(day * math.tau / 25) for day in range(100)])
    first = seen[0]
    assert first.state[:3] == [100_000, 100, 0]
    assert (first.portfolio_value, first.reward, first.date) == (100_000, 0.0, "2020-01-01")
    assert first.metadata == {"tickers": ["S1"]}
    assert len(first.state) == 7


def test_instances_and_processes_agree_to_the_last_bit() -> None:
    code = (
        "from finrl_env.server.finrl_environment import FinRLEnvironment;"
        "from finrl_env.models import FinRLAction;"
        "env = FinRLEnvironment({'market': 'mixed', 'stock_dim': 4}); env.reset(seed=-3);"
        "[env.step(FinRLAction(actions=[.3, -.1, .2, .7])) for _ in range(40)];"
        "print(env.step(FinRLAction(actions=[0, 0, 0, 0])).model_dump_json(), end='')"
    )
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    env = FinRLEnvironment({"market": "mixed", "stock_dim": 4})
    env.reset(seed=-3)
    for _ in range(40):
        act(env, 0.3, -0.1, 0.2, 0.7)
    assert there.stdout == act(env, 0, 0, 0, 0).model_dump_json()


def test_the_package_loads_nothing_before_a_name_is_used() -> None:
    code = (
        "import sys, finrl_env; assert not any(m.startswith(('pydantic', 'finrl_env.', "
        "'openenv.client', 'openenv.types')) for m in sys.modules), sys.modules.keys(); "
        "assert finrl_env.models.FinRLAction is finrl_env.FinRLAction; finrl_env.client.FinRLEnv; "
        "assert not {'numpy', 'fastapi', 'finrl_env.server'} & sys.modules.keys(); "
        "assert 'FinRLAction' in dir(finrl_env)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert all(getattr(finrl_env, name) for name in finrl_env.__all__)
    with pytest.raises(AttributeError, match="Did you mean 'FinRLEnv'"):
        finrl_env.FinrlEnv  # noqa: B018


def test_trading_loads_no_pandas_and_no_matplotlib() -> None:
    code = (
        "import sys; from finrl_env.server.app import app;"
        "from finrl_env.server.finrl_environment import FinRLEnvironment as E; E().reset();"
        "assert not {'pandas', 'matplotlib', 'pyarrow'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ------------------------------------------------------------------ trading


def rules(stocks: int = 2, cost: float = 0.01, hmax: float = 100) -> Rules:
    return Rules(
        hmax=hmax,
        cash=0,
        holdings=(0.0,) * stocks,
        buy_costs=(cost,) * stocks,
        sell_costs=(cost,) * stocks,
        reward_scaling=1,
        turbulence_threshold=None,
        idle_last_step=False,
    )


def test_a_purchase_pays_price_and_commission() -> None:
    book = Book(cash=1000.0, holdings=[0.0, 0.0])
    traded = trade(book, [0.05, 0], [100, 50], [True, True], rules(), turbulent=False)
    assert traded == [5, 0]
    assert book.cash == pytest.approx(1000 - 5 * 100 * 1.01)
    assert book.costs == pytest.approx(5)
    assert (book.traded, book.trades) == (500, 1)


def test_no_more_is_bought_than_can_be_paid_and_no_more_sold_than_is_held() -> None:
    book = Book(cash=1000.0, holdings=[0.0, 3.0])
    traded = trade(book, [1, -1], [100, 50], [True, True], rules(), turbulent=False)
    assert traded == [11, -3]  # 1000 + 3 * 50 * 0.99 = 1148.5, at 101 a share
    assert 0 <= book.cash < 101


def test_the_largest_purchase_is_filled_first() -> None:
    book = Book(cash=1000.0, holdings=[0.0, 0.0])
    traded = trade(book, [0.08, 0.09], [100, 100], [True, True], rules(cost=0), turbulent=False)
    assert traded == [1, 9]


def test_orders_are_cut_to_whole_shares() -> None:
    book = Book(cash=1000.0, holdings=[5.0, 0.0])
    traded = trade(book, [-0.019, 0.019], [10, 10], [True, True], rules(cost=0), turbulent=False)
    assert traded == [-1, 1]


@pytest.mark.parametrize("huge", [1e6, 1e300, sys.float_info.max])
def test_an_order_of_any_size_is_filled_as_far_as_it_goes(huge: float) -> None:
    book = Book(cash=1000.0, holdings=[0.0, 7.0])
    traded = trade(book, [huge, -huge], [100, 100], [True, True], rules(cost=0), turbulent=False)
    assert traded == [17, -7]
    assert book.cash == 0


def test_turbulence_sells_everything_tradable_or_not() -> None:
    book = Book(cash=0.0, holdings=[500.0, 7.0])
    traded = trade(book, [1, 1], [10, 10], [False, True], rules(cost=0), turbulent=True)
    assert traded == [-500, -7]
    assert book.value([10, 10]) == 5070


def test_a_stock_that_is_not_tradable_is_left_alone() -> None:
    book = Book(cash=1000.0, holdings=[5.0, 0.0])
    traded = trade(book, [-1, 1], [10, 10], [False, False], rules(), turbulent=False)
    assert traded == [0, 0]
    assert (book.cash, book.holdings) == (1000, [5, 0])


def test_money_is_neither_made_nor_lost_by_trading_without_commission() -> None:
    env = FinRLEnvironment({"stock_dim": 3, "buy_cost_pct": 0, "sell_cost_pct": [0, 0, 0]})
    for before, after in pairwise(play(env)[:-1]):
        held, new = before.state, after.state
        gain = sum(n * (q - p) for n, p, q in zip(new[4:7], held[1:4], new[1:4], strict=True))
        assert after.portfolio_value - before.portfolio_value == pytest.approx(gain, abs=1e-6)


@pytest.mark.parametrize("market", ["sine", "crash"])
def test_rewards_add_up_to_the_gain_without_the_idle_step(market: str) -> None:
    env = FinRLEnvironment({"stock_dim": 2, "idle_last_step": False, "market": market})
    seen = play(env, seed=1)
    assert len(seen) == env.state.days == env.state.step_count + 1
    gain = seen[-1].portfolio_value - seen[0].portfolio_value
    assert sum(one.reward or 0.0 for one in seen) == pytest.approx(gain * 1e-4)


@pytest.mark.parametrize("idle", [True, False])
def test_rewards_are_as_they_are_declared(idle: bool) -> None:
    choices, config = random.Random(4), {"idle_last_step": idle, "market": "mixed"}
    with FinRLEnv.local(lambda: FinRLEnvironment(config)).sync() as env:
        traded = rewards.played(
            env, lambda seen: FinRLAction(actions=[choices.uniform(-1, 1)]), seed=4, days=60
        )
        metrics = env.state().metrics
    total, brought = rewards.worth(traded), rewards.parts(traded)
    assert total is not None
    last = traded[-1].reward if idle else 0.0
    assert brought.get("idle", 0.0) == last
    assert brought["commissions"] == pytest.approx(-metrics.costs * 1e-4)
    assert total - (last or 0.0) == pytest.approx(metrics.total_return * 100_000 * 1e-4)


@pytest.mark.parametrize("scaling", [1e-4, -1e-4])
def test_the_range_that_is_declared_is_that_of_the_days_played(scaling: float) -> None:
    config = {"market": "sine", "reward_scaling": scaling, "buy_cost_pct": 0.0}
    with FinRLEnv.local(lambda: FinRLEnvironment(config)).sync() as env:
        everything = [FinRLAction(actions=[1000.0])] * 9
        traded = rewards.played(env, rewards.in_turn(everything), start=19, days=2)
        assert rewards.worth(traded) is not None and env.reward_spec is not None
        assert env.reward_spec.range is not None
        best = max(env.reward_spec.range, key=lambda end: end / scaling)
        assert traded[1].reward == pytest.approx(best, rel=0.01)
        short = env.reward_spec.range
        env.reset(start=19, days=30)
        assert env.reward_spec.range is not None
        assert env.reward_spec.range[0] <= short[0] and env.reward_spec.range[1] >= short[1]


def test_the_idle_step_trades_nothing_and_repeats_the_last_reward() -> None:
    env = FinRLEnvironment()
    *_, before, last = play(env)
    assert (last.state, last.portfolio_value, last.date, last.reward) == (
        before.state,
        before.portfolio_value,
        before.date,
        before.reward,
    )
    assert (before.done, last.done, last.truncated) == (False, True, False)
    assert last.metadata["traded"] == [0]
    assert env.state.day == 99 and env.state.step_count == 100


@pytest.mark.parametrize("wrong", [[], [0.1, 0.2], [math.nan], [math.inf], [-math.inf]])
def test_a_wrong_action_is_refused_and_changes_nothing(wrong: list[float]) -> None:
    env = FinRLEnvironment()
    env.reset()
    act(env, 0.5)
    before = env.snapshot()
    with pytest.raises(Refused, match=r"^actions: "):
        act(env, *wrong)
    assert env.snapshot() == before
    assert act(env, 0.5).state[2] == 100


def test_a_step_without_an_episode_is_refused() -> None:
    env = FinRLEnvironment()
    with pytest.raises(Refused, match="before reset"):
        act(env, 1)
    play(env)
    before = env.snapshot()
    with pytest.raises(Refused, match="after done"):
        act(env, 1)
    assert env.snapshot() == before


def test_shares_at_the_beginning_count() -> None:
    """FinRL itself ignores the initial shares of a single stock."""
    env = FinRLEnvironment({"num_stock_shares": [10]})
    first = env.reset()
    assert (first.state[2], first.portfolio_value) == (10, 101_000)


def test_an_episode_may_begin_with_a_previous_state() -> None:
    env = FinRLEnvironment({"initial": False, "previous_state": [500, 90, 3, 0, 0, 0, 0]})
    assert env.reset().state[:3] == [500, 100, 3]


# ------------------------------------------------------------------ metrics


def test_metrics_of_a_known_episode(tmp_path: Path) -> None:
    prices = [100, 110, 99, 121]
    path = write(tmp_path, [[day(n), "A", price] for n, price in enumerate(prices)])
    keys = {"data_path": str(path), "tech_indicator_list": [], "idle_last_step": False}
    env = FinRLEnvironment({**keys, "initial_amount": 1010, "buy_cost_pct": 0.01, "hmax": 10})
    assert env.reset().state == [1010, 100, 0]
    assert env.state.metrics.sharpe is None
    act(env, 1)  # all of the money buys 10 shares at 101
    act(env, 0)
    last = act(env, 0)
    values = [1010, 1100, 990, 1210]
    returns = [b / a - 1 for a, b in pairwise(values)]
    metrics = last.metadata["metrics"]
    assert metrics == env.state.metrics.model_dump()
    assert metrics["total_return"] == pytest.approx(200 / 1010)
    assert metrics["market_return"] == pytest.approx(0.21)
    assert metrics["max_drawdown"] == pytest.approx(0.1)
    assert metrics["costs"] == pytest.approx(10)
    assert metrics["trades"] == 1
    assert metrics["turnover"] == pytest.approx(1000 / np.mean(values))
    assert metrics["sharpe"] == pytest.approx(
        math.sqrt(252) * np.mean(returns) / np.std(returns, ddof=1)
    )


def test_a_portfolio_that_never_moves_has_no_sharpe_ratio() -> None:
    env = FinRLEnvironment()
    env.reset()
    for _ in range(10):
        act(env, 0)
    assert env.state.metrics.model_dump() == {
        "total_return": 0,
        "market_return": env.state.metrics.market_return,
        "sharpe": None,
        "max_drawdown": 0,
        "turnover": 0,
        "costs": 0,
        "trades": 0,
    }


def test_the_agent_is_not_told_which_market_it_is_in() -> None:
    from openenv.types import public_view

    env = FinRLEnvironment()
    env.reset(task="test/crash/0/0")
    assert (env.state.market, env.state.task_id) == ("crash", "test/crash/0/0")
    assert not {"market", "task_id"} & public_view(env.state).keys()


# ------------------------------------------------------------------ random markets


@pytest.mark.parametrize("market", REGIMES)
def test_the_seed_determines_the_market(market: str) -> None:
    config = {"market": market, "stock_dim": 3, "market_days": 40}
    first, second = FinRLEnvironment(config), FinRLEnvironment(config)
    for seed in (0, 1, -1, 2**70):
        expected = play(first, seed=seed)
        assert play(second, seed=seed) == expected
    firsts = {repr(first.reset(seed=seed).state) for seed in (0, 1, -1, 2**70, None, None)}
    assert len(firsts) == 6


def test_no_other_random_generator_is_read_or_advanced() -> None:
    env = FinRLEnvironment({"market": "mixed"})
    np.random.seed(1)
    random.seed(1)
    before = random.getstate(), repr(np.random.get_state())
    first = env.reset(seed=5)
    assert (random.getstate(), repr(np.random.get_state())) == before
    np.random.seed(2)
    assert env.reset(seed=5) == first


def market_returns(regime: str, seeds: Sequence[int], days: int = 252) -> list[float]:
    closes = [random_market(regime, [seed], days, 5, []).close for seed in seeds]
    return [float((close[-1] / close[0]).mean() - 1) for close in closes]


def test_the_regimes_are_what_their_names_say() -> None:
    seeds = range(30)
    bull, bear, sideways = (market_returns(r, seeds) for r in ("bull", "bear", "sideways"))
    assert np.mean(bull) > 0.15 and np.mean(bear) < -0.2 and abs(np.mean(sideways)) < 0.08
    assert np.std(sideways) < np.std(bull)


def test_a_crash_falls_deep_in_a_few_days() -> None:
    for seed in range(10):
        close = random_market("crash", [seed], 252, 5, []).close
        index = (close / close[0]).mean(axis=1)
        worst = (index[15:] / index[:-15] - 1).min()
        assert worst < -0.15
    for seed in range(10):
        close = random_market("bull", [seed], 252, 5, []).close
        index = (close / close[0]).mean(axis=1)
        assert (index[15:] / index[:-15] - 1).min() > -0.15


def test_stocks_move_together_and_calm_days_follow_calm_days() -> None:
    close = random_market("bull", [1], 8000, 6, []).close
    returns = np.diff(np.log(np.maximum(close, 1)), axis=0)
    correlation = np.corrcoef(returns.T)[np.triu_indices(6, 1)]
    assert 0.1 < correlation.min() < correlation.max() < 0.9
    sizes = np.abs(returns)
    for stock in range(6):
        assert np.corrcoef(sizes[1:, stock], sizes[:-1, stock])[0, 1] > 0.1
        signed = np.corrcoef(returns[1:, stock], returns[:-1, stock])[0, 1]
        assert abs(signed) < 0.06, "the direction can be foretold"


def test_a_market_of_an_episode_is_chosen_by_reset() -> None:
    env = FinRLEnvironment({"stock_dim": 2, "market_days": 50})
    assert env.reset().metadata["tickers"] == ["S1", "S2"]
    env.reset(market="bear", seed=1, start=10, days=20)
    assert (env.state.market, env.state.days, env.state.date) == ("bear", 20, "2020-01-15")
    env.reset(market="bear", seed=1, start="2020-01-12")
    assert (env.state.date, env.state.days) == ("2020-01-13", 42)
    env.reset()
    assert env.state.market == "sine"


def test_a_window_is_a_part_of_the_whole() -> None:
    env = FinRLEnvironment({"market": "mixed"})
    env.reset(seed=2)
    whole = [act(env, 0).state for _ in range(30)]
    window = env.reset(seed=2, start=11, days=10)
    assert [window.state] + [act(env, 0).state for _ in range(9)] == whole[10:20]
    assert act(env, 1).state != whole[20]
    assert env.state.day == 9


WRONG_RESETS: list[tuple[dict[str, Any], str]] = [
    ({"market": "bul"}, "did you mean 'bull'"),
    ({"market": "data"}, "known are sine"),
    ({"market": 3}, "market: 3 is not of type str"),
    ({"start": 99}, "0 to 98"),
    ({"start": -1}, "0 to 98"),
    ({"start": "2099-01-01"}, "2020-01-01 to "),
    ({"start": 1.5}, "int or str"),
    ({"days": 1}, "^days: 1"),
    ({"days": 101}, "market has 100"),
    ({"start": 50, "days": 51}, "market has 50"),
    ({"days": "10"}, "type int"),
    ({"days": True}, "type int"),
    ({"seed": "x"}, "^seed"),
    ({"task": "train/bul/0/0"}, "did you mean 'train/bull/0/0'"),
    ({"task": "train/bull/0/0", "days": 5}, "days"),
    ({"task": {"id": "train/bull/0/0"}}, r"^task\.split: Field required"),
    ({"task": 7}, "^task: .* not 7"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG_RESETS, ids=str)
def test_a_wrong_reset_is_refused_and_the_episode_goes_on(
    arguments: dict[str, Any], words: str
) -> None:
    env = FinRLEnvironment()
    env.reset()
    act(env, 0.5)
    before = env.snapshot()
    with pytest.raises(Refused, match=words):
        env.reset(**arguments)
    assert env.snapshot() == before


def test_a_misspelt_argument_is_an_error() -> None:
    with pytest.raises(TypeError):
        FinRLEnvironment().reset(regime="bull")  # type: ignore[call-arg]


# ------------------------------------------------------------------ indicators


def bars_of(close: Sequence[float], spread: float = 1.0) -> Bars:
    column = np.array(close, dtype=float)[:, None]
    return Bars(high=column + spread, low=column - spread, close=column)


def values_of(name: str, bars: Bars) -> list[float]:
    values = indicator(name, bars)
    assert values is not None
    return [float(value) for value in values[:, 0]]


def test_an_rsi_weighs_gains_against_losses() -> None:
    # Weights of the days, newest first: 1, 1/2, 1/4; gains 2, 0, 0; losses 0, 1, 0.
    assert values_of("rsi_2", bars_of([10, 9, 11])) == pytest.approx([50, 0, 80])
    assert values_of("rsi_30", bars_of([5, 5, 5])) == [50, 50, 50]


def test_a_cci_is_a_distance_in_mean_deviations() -> None:
    # Typical prices 1, 2, 6: mean 3, mean deviation (2 + 1 + 3) / 3 = 2.
    assert values_of("cci_3", bars_of([1, 2, 6], spread=0)) == pytest.approx([0, 0, 3 / 0.03])


def test_a_dx_weighs_rising_against_falling_highs_and_lows() -> None:
    # Rising by 3, then falling by 1: weights 1/2 and 1 make (1.5 - 1) / 2.5.
    assert values_of("dx_2", bars_of([10, 13, 12])) == pytest.approx([0, 100, 20])


def test_a_macd_is_the_difference_of_two_averages() -> None:
    fast = (1 * (11 / 13) + 2) / (1 + 11 / 13)
    slow = (1 * (25 / 27) + 2) / (1 + 25 / 27)
    assert values_of("macd", bars_of([1, 2])) == pytest.approx([0, fast - slow])


def test_averages_and_bands_of_days() -> None:
    assert values_of("close_2_sma", bars_of([1, 2, 6])) == pytest.approx([1, 1.5, 4])
    assert values_of("boll_ub", bars_of([1, 3])) == pytest.approx([1, 2 + 2 * math.sqrt(2)])
    assert values_of("boll_lb", bars_of([1, 3])) == pytest.approx([1, 2 - 2 * math.sqrt(2)])


@pytest.mark.parametrize("name", ["", "rsi", "rsi_0", "rsi_-3", "macd_2", "close_sma", "xrsi_30"])
def test_a_name_of_no_indicator_is_none(name: str) -> None:
    assert indicator(name, bars_of([1, 2])) is None


@pytest.mark.parametrize("name", [*INDICATORS, "boll_ub", "close_60_sma"])
def test_an_indicator_does_not_know_the_future(name: str) -> None:
    close = random_market("mixed", [4], 90, 2, []).close
    bars = Bars(close * 1.01, close * 0.99, close)
    past = Bars(*(prices[:50] for prices in bars))
    whole, part = indicator(name, bars), indicator(name, past)
    assert whole is not None and part is not None
    np.testing.assert_array_equal(whole[:50], part)


def test_turbulence_is_high_on_unusual_days() -> None:
    rng = np.random.default_rng(0)
    returns = rng.normal(0, 0.01, (400, 3))
    returns[350] = [0.05, -0.05, 0.05]
    values = turbulence(100 * np.exp(np.cumsum(returns, axis=0)))
    assert (values[:252] == 0).all()
    assert values[252:350].mean() == pytest.approx(3, rel=0.3)  # chi-squared, 3 degrees
    assert values.argmax() == 350 and values[350] > 50


def test_over_the_threshold_everything_is_sold_and_nothing_bought() -> None:
    config = {"market": "crash", "stock_dim": 4, "turbulence_threshold": 30}
    env = FinRLEnvironment(config)
    env.reset(seed=1)
    sold = 0
    for _ in range(env.state.days - 1):
        seen = act(env, 1, 1, 1, 1)
        sold += min(seen.metadata["traded"]) < 0
    assert sold >= 1


# ------------------------------------------------------------------ data from files


def day(number: int, first: date = date(2024, 1, 1)) -> str:
    return (first + timedelta(days=number)).isoformat()


def write(
    folder: Path, rows: Sequence[Sequence[Any]], header: Sequence[str] = ("date", "tic", "close")
) -> Path:
    path = folder / "data.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def two_stocks(days: int = 5) -> list[list[Any]]:
    return [[day(n), tic, 100 + n + k] for n in range(days) for k, tic in enumerate(("AA", "BB"))]


def opened(path: Path, **keys: Any) -> FinRLEnvironment:
    return FinRLEnvironment({"data_path": str(path), "tech_indicator_list": [], **keys})


def test_real_data_are_traded_as_they_are(tmp_path: Path) -> None:
    header = ["", "date", "tic", "close", "volume", "macd", "mood"]
    rows = [[n, day(n // 2), tic, 10 + n, 1, n / 8, -n] for n, tic in enumerate(["AA", "BB"] * 4)]
    env = opened(write(tmp_path, rows, header), tech_indicator_list=["macd", "mood"])
    first = env.reset()
    assert first.state == [100_000, 10, 11, 0, 0, 0, 0.125, 0, -1]
    assert (first.date, first.metadata) == ("2024-01-01", {"tickers": ["AA", "BB"]})
    assert act(env, 0, 1).state == [100_000 - 1101.1, 12, 13, 0, 100, 0.25, 0.375, -2, -3]
    assert env.state.tech_indicators == ["macd", "mood"]


def test_indicators_that_a_file_does_not_have_are_computed(tmp_path: Path) -> None:
    rows = [[day(n), tic, c, c + 1, c - 2] for n, (tic, c) in enumerate([("A", 7), ("A", 9)])]
    path = write(tmp_path, rows, ["date", "tic", "close", "high", "low"])
    env = opened(path, tech_indicator_list=INDICATORS)
    column = np.array([[7.0], [9.0]])
    bars = Bars(column + 1, column - 2, column)
    env.reset()
    assert act(env, 0).state[3:] == [values_of(name, bars)[1] for name in INDICATORS]


@pytest.mark.parametrize("kind", ["text", "date", "timestamp"])
def test_parquet_is_traded_like_csv(tmp_path: Path, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    rows = two_stocks()
    dates: dict[str, Callable[[str], Any]] = {
        "text": str,
        "date": date.fromisoformat,
        "timestamp": datetime.fromisoformat,
    }
    table = {
        "date": [dates[kind](row[0]) for row in rows],
        "tic": [row[1] for row in rows],
        "close": [row[2] for row in rows],
    }
    path = tmp_path / "data.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(table), path)
    assert play(opened(path)) == play(opened(write(tmp_path, rows)))


def changed(rows: list[list[Any]], row: int, column: int, value: Any) -> list[list[Any]]:
    rows[row][column] = value
    return rows


def swapped(rows: list[list[Any]], one: int, other: int) -> list[list[Any]]:
    rows[one], rows[other] = rows[other], rows[one]
    return rows


def unsorted_days() -> list[list[Any]]:
    rows = two_stocks()
    return rows[:2] + rows[4:6] + rows[2:4] + rows[6:]


WRONG_DATA: dict[str, tuple[list[list[Any]], str]] = {
    "NaN": (changed(two_stocks(), 3, 2, "nan"), r"row 5 \(2024-01-02, BB\): close is 'nan'"),
    "empty": (changed(two_stocks(), 3, 2, ""), r"row 5 .*close is '', not a finite number"),
    "text": (changed(two_stocks(), 0, 2, "n/a"), r"row 2 .*close is 'n/a'"),
    "infinite": (changed(two_stocks(), 0, 2, "inf"), r"row 2 .*close is 'inf'"),
    "no price": (changed(two_stocks(), 4, 2, 0), r"row 6 .*close is 0, not above 0"),
    "no date": (changed(two_stocks(), 4, 0, "1/3/2024"), r"row 6 .*such as 2024-01-31"),
    "missing row": (two_stocks()[:3] + two_stocks()[4:], r"row 4 .*no row of BB"),
    "another stock": (changed(two_stocks(), 3, 1, "CC"), "no row of BB and rows of CC"),
    "one stock more": ([*two_stocks(), [day(4), "CC", 1]], "rows of CC"),
    "twice": ([*two_stocks(), [day(4), "BB", 1]], "two rows of BB"),
    "unsorted days": (unsorted_days(), r"row 6 .*comes after 2024-01-03.*sorted by date"),
    "unsorted stocks": (swapped(two_stocks(), 2, 3), "in the order BB, AA.*sorted by date"),
    "sorted by stock": (sorted(two_stocks(), key=lambda row: row[1]), "sorted by date"),
    "gap": ([*two_stocks(), [day(40), "AA", 1], [day(40), "BB", 1]], "gap of 36 days.*max_gap"),
    "one day": (two_stocks(1), "1 days"),
    "nothing": ([], "0 days"),
    "short row": ([*two_stocks(), [day(5), "AA"]], "row 12: 2 values, but the header has 3"),
}


@pytest.mark.parametrize("fault", WRONG_DATA)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, fault: str) -> None:
    rows, words = WRONG_DATA[fault]
    with pytest.raises(ValueError, match=words):
        opened(write(tmp_path, rows))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, two_stocks(), ["date", "ticker", "close"])
    with pytest.raises(ValueError, match="no column 'tic'; did you mean 'ticker'"):
        opened(path)
    path = write(tmp_path, two_stocks())
    with pytest.raises(ValueError, match="no column 'high', 'low'"):
        opened(path, tech_indicator_list=["macd", "cci_30"])
    with pytest.raises(ValueError, match="no column 'vix'"):
        opened(path, turbulence_threshold=3, risk_indicator_col="vix")


def test_a_measure_of_risk_is_one_for_all_stocks(tmp_path: Path) -> None:
    rows = [[*row, 5 if row[1] == "AA" else 6] for row in two_stocks()]
    path = write(tmp_path, rows, ["date", "tic", "close", "vix"])
    with pytest.raises(ValueError, match="vix is 6, and 5 for another stock"):
        opened(path, turbulence_threshold=3, risk_indicator_col="vix")


def test_a_gap_may_be_meant(tmp_path: Path) -> None:
    rows = [*two_stocks(), [day(40), "AA", 1], [day(40), "BB", 1]]
    assert len(play(opened(write(tmp_path, rows), max_gap_days=60))) == 7


@pytest.mark.parametrize("step_days", [7, 31])
def test_weekly_and_monthly_data_have_no_gaps(tmp_path: Path, step_days: int) -> None:
    rows = [[day(n * step_days), "A", 10 + n] for n in range(6)]
    assert len(play(opened(write(tmp_path, rows)))) == 7


def test_data_by_the_minute_may_rest_at_night(tmp_path: Path) -> None:
    rows = [[f"2024-01-0{d} 09:{m}:00", "A", 10 + m] for d in (2, 3) for m in range(30, 40)]
    assert play(opened(write(tmp_path, rows)))[0].date == "2024-01-02 09:30:00"


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*none\.csv"):
        opened(tmp_path / "none.csv")
    for name in ("noise.csv", "noise.parquet"):
        path = tmp_path / name
        path.write_bytes(bytes(range(256)))
        with pytest.raises(ValueError, match="cannot be read as"):
            opened(path)


def test_random_markets_beside_data_have_their_number_of_stocks(tmp_path: Path) -> None:
    env = opened(write(tmp_path, two_stocks()))
    env.reset(market="bull", seed=1)
    assert env.state.tickers == ["S1", "S2"] and env.state.market == "bull"
    env.reset()
    assert env.state.tickers == ["AA", "BB"] and env.state.market == "data"


def test_an_indicator_that_only_the_data_have_is_refused_for_other_markets(tmp_path: Path) -> None:
    rows = [[*row, 1] for row in two_stocks()]
    path = write(tmp_path, rows, ["date", "tic", "close", "mood"])
    env = opened(path, tech_indicator_list=["mood"])
    with pytest.raises(Refused, match="'mood' cannot be computed"):
        env.reset(market="bull")


# ------------------------------------------------------------------ configuration

WRONG_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"hmx": 3}, "unknown key 'hmx'; did you mean 'hmax'"),
    ({"hmax": 0}, "^hmax: .*greater than 0"),
    ({"hmax": "many"}, "^hmax: "),
    ({"initial_amount": -1}, "^initial_amount: "),
    ({"initial_amount": 0}, "nothing to trade with"),
    ({"initial_amount": math.inf}, "^initial_amount: "),
    ({"reward_scaling": math.nan}, "^reward_scaling: "),
    ({"buy_cost_pct": [0.1, 0.1]}, "buy_cost_pct: 2 numbers for 1 stocks"),
    ({"sell_cost_pct": [1.5]}, "^sell_cost_pct: "),
    ({"num_stock_shares": [-5]}, "^num_stock_shares: "),
    ({"state_space": 8}, "state_space: it is 7 .*, not 8"),
    ({"action_space": 2}, "action_space: it is 1 .*, not 2"),
    ({"stock_dim": 0}, "^stock_dim: "),
    ({"market": "bul"}, "did you mean 'bull'"),
    ({"market_days": 1}, "^market_days: "),
    ({"market_days": 10_001}, "^market_days: .*10000"),
    ({"tech_indicator_list": ["mood"]}, "'mood' cannot be computed"),
    ({"turbulence_threshold": 5, "risk_indicator_col": "vix"}, "vix"),
    ({"initial": False, "previous_state": [1, 2]}, "^previous_state: 2 numbers"),
    ({"initial": False, "previous_state": [1, 2, -3]}, "must not be below 0"),
]


@pytest.mark.parametrize(("keys", "words"), WRONG_KEYS, ids=str)
def test_a_wrong_configuration_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FinRLEnvironment(keys)


def test_the_configuration_is_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is read when an environment is made, not when the module is imported."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"data_path": str(write(tmp_path, two_stocks())), "hmax": 7}))
    monkeypatch.setenv(CONFIG_PATH, str(path))
    with pytest.raises(ValueError, match="no column 'high', 'low'"):
        FinRLEnvironment()
    path.write_text(
        json.dumps(
            {
                "data_path": str(tmp_path / "data.csv"),
                "hmax": 7,
                "stock_dim": 2,
                "tech_indicator_list": ["macd"],
                "state_space": 7,
                "action_space": 2,
                "make_plots": False,
                "print_verbosity": 10,
            }
        )
    )
    env = FinRLEnvironment()
    env.reset()
    assert act(env, 1, 1).state[3:5] == [7, 7]
    assert read_setup().described().model_dump() == {
        "stock_dim": 2,
        "initial_amount": 100_000,
        "action_space": 2,
        "state_space": 7,
        "tech_indicators": ["macd"],
    }
    assert FinRLEnvironment()._setup is env._setup, "the data are read for every session"


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"hmax": NaN}'])
def test_a_configuration_that_is_no_object_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    monkeypatch.setenv(CONFIG_PATH, str(path))
    with pytest.raises(ValueError, match=CONFIG_PATH):
        FinRLEnvironment()
    monkeypatch.setenv(CONFIG_PATH, str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match=CONFIG_PATH):
        FinRLEnvironment()


def test_what_has_no_effect_is_said(caplog: pytest.LogCaptureFixture) -> None:
    FinRLEnvironment({"make_plots": True, "mode": "train"})
    assert "make_plots, mode have no effect" in caplog.text


# ------------------------------------------------------------------ tasks


def test_the_splits_share_no_market() -> None:
    assert FinRLEnvironment.list_splits() == ["train", "test"]
    env = FinRLEnvironment()
    openings: dict[str, set[tuple[float, ...]]] = {}
    for split in SPLITS:
        tasks = env.list_tasks(split)
        assert env.num_tasks(split) == len(tasks) == SPLITS[split] * len(REGIMES) * 2
        assert len({task.id for task in tasks}) == len(tasks)
        openings[split] = {
            tuple(env.reset(task=task.id).state[1:6]) for task in tasks if task.start == 0
        }
        assert len(openings[split]) == len(tasks) / 2
    assert not openings["train"] & openings["test"]


def test_tasks_are_given_by_their_index() -> None:
    env = FinRLEnvironment()
    tasks = env.list_tasks("test")
    assert env.get_task("test", 3) == tasks[3]
    assert env.get_task_range("test", 1, 4) == tasks[1:4]
    assert env.get_task_range("test") == tasks
    for index in (-1, len(tasks)):
        with pytest.raises(IndexError):
            env.get_task("test", index)
    with pytest.raises(Refused, match="did you mean 'test'"):
        env.list_tasks("tests")


def test_a_task_is_the_same_on_every_server_and_with_every_seed(tmp_path: Path) -> None:
    default, other = FinRLEnvironment(), opened(write(tmp_path, two_stocks()), hmax=3)
    task = default.get_task("train", 7)
    seen = play(default, task=task.id, seed=1)
    assert seen == play(other, task=json.loads(task.model_dump_json()), seed=2)
    assert len(seen) == task.days
    assert seen[0].state[0] == TASK_RULES.cash
    gain = seen[-1].portfolio_value - seen[0].portfolio_value
    assert sum(one.reward or 0.0 for one in seen) == pytest.approx(gain * 1e-4)


def test_a_task_that_was_changed_is_refused() -> None:
    env = FinRLEnvironment()
    task = {**env.get_task("train", 0).model_dump(), "days": 20}
    with pytest.raises(Refused, match="train/bull/0/0 is"):
        env.reset(task=task)


@pytest.mark.slow
def test_holding_equal_parts_is_worth_what_the_regime_is() -> None:
    """A naive trader earns in a bull market and loses in a bear market, on average."""
    returns: dict[str, list[float]] = {name: [] for name in REGIMES}
    env = FinRLEnvironment()
    for task in env.list_tasks("train"):
        seen = env.reset(task=task.id)
        while not seen.done:
            seen = act(env, *[1.0] * 5)
        returns[task.market].append(env.state.metrics.total_return)
    assert np.mean(returns["bull"]) > 0.03 > -0.03 > np.mean(returns["bear"])


# ------------------------------------------------------------------ stored episodes


STORED: list[dict[str, Any]] = [
    {},
    {"market": "mixed"},
    {"market": "bull", "seed": -4, "start": 3},
    {"task": "test/bear/1/126"},
]


@pytest.mark.parametrize("arguments", STORED, ids=str)
def test_a_stored_episode_goes_on_anywhere(arguments: dict[str, Any]) -> None:
    env, elsewhere = FinRLEnvironment(), FinRLEnvironment()
    env.reset(**arguments)
    stocks = len(env.state.tickers)
    for _ in range(20):
        act(env, *[0.4] * stocks)
    stored, state = env.snapshot(), env.state
    elsewhere.restore(stored)
    assert elsewhere.state == state and elsewhere.snapshot() == stored
    done = False
    while not done:
        seen = act(env, *[-0.1] * stocks)
        assert act(elsewhere, *[-0.1] * stocks) == seen
        done = seen.done
    stored = env.snapshot()
    elsewhere.restore(stored)
    assert elsewhere.state == env.state
    with pytest.raises(Refused, match="after done"):
        act(elsewhere, *[0.0] * stocks)


def test_an_episode_is_not_restored_under_other_rules_or_data(tmp_path: Path) -> None:
    env = opened(write(tmp_path, two_stocks()))
    env.reset()
    stored = env.snapshot()
    rows = changed(two_stocks(), 9, 2, 50)
    for other in (
        opened(write(tmp_path, rows)),
        opened(write(tmp_path, two_stocks()), hmax=5),
        FinRLEnvironment({"stock_dim": 2}),
    ):
        with pytest.raises(ValueError):
            other.restore(stored)
        with pytest.raises(Refused, match="before reset"):
            other.snapshot()


WRONG_PROGRESS: list[dict[str, Any]] = [
    {"day": 4},
    {"day": -1},
    {"step_count": 7},
    {"done": True},
    {"values": []},
    {"values": [100_000.0] * 4},
    {"values": [0.0, 0.0, 0.0, 0.0]},
    {"cash": [1.0]},
    {"reward": None},
    {"more": 1},
    {"book": {"cash": 1e9}},
    {"book": {"holdings": [1.0, 2.0]}},
    {"book": {"holdings": [-5.0]}},
    {"book": {"costs": "NaN"}},
]
WRONG_SNAPSHOT: list[dict[str, Any]] = [
    {"market": "bull"},
    {"market": "data"},
    {"market": "none"},
    {"seed": 3},
    {"task_id": "train/bull/0/0"},
    {"task_id": "train/bull/99/0"},
    {"start": 1},
    {"start": 10**9},
    {"days": 1},
    {"days": 10**9},
    {"fingerprint": ""},
    {"more": 1},
]


WRONG_SNAPSHOT += [{"progress": wrong} for wrong in WRONG_PROGRESS]


@pytest.mark.parametrize("wrong", WRONG_SNAPSHOT, ids=str)
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = FinRLEnvironment()
    env.reset()
    for _ in range(3):
        act(env, 0.5)
    before = env.snapshot()
    with pytest.raises(ValueError):
        env.restore(json.dumps(merged(json.loads(before), wrong)).encode())
    assert env.snapshot() == before
    act(env, 0.5)


def merged(stored: dict[str, Any], wrong: dict[str, Any]) -> dict[str, Any]:
    result = dict(stored)
    for name, value in wrong.items():
        nested = isinstance(value, dict) and isinstance(stored.get(name), dict)
        result[name] = merged(stored[name], value) if nested else value
    return result


def test_bytes_that_are_nothing_are_refused() -> None:
    env = FinRLEnvironment()
    for data in (b"", b"\xff\x00", b"[]", b"null", b'{"market": 3}', b"[" * 100_000):
        with pytest.raises(ValueError):
            env.restore(data)


# ------------------------------------------------------------------ pictures


def test_a_picture_shows_the_episode_and_changes_nothing() -> None:
    env = FinRLEnvironment({"stock_dim": 2})
    with pytest.raises(Refused, match="before reset"):
        env.render()
    env.reset()
    first = env.render()
    assert first.shape == (480, 800, 3)
    assert first.dtype == np.uint8
    for _ in range(30):
        act(env, 0.5, -0.2)
    before = env.snapshot()
    second = env.render()
    assert env.snapshot() == before
    assert (first != second).any() and (second != 255).any()
    np.testing.assert_array_equal(second, env.render())


def test_pictures_touch_nothing_that_pyplot_shares() -> None:
    code = (
        "import sys; from finrl_env.server.finrl_environment import FinRLEnvironment as E;"
        "env = E(); env.reset(); env.render();"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_threads_draw_side_by_side() -> None:
    envs = [FinRLEnvironment() for _ in range(4)]
    pictures: list[Any] = []
    for env in envs:
        env.reset()
    threads = [threading.Thread(target=lambda e=e: pictures.append(e.render())) for e in envs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(pictures) == 4
    assert all((picture == pictures[0]).all() for picture in pictures)


# ------------------------------------------------------------------ client and server


@pytest.fixture
def url() -> Iterator[str]:
    from finrl_env.server.app import app

    with serving(app) as base_url:
        yield base_url


def test_a_client_trades_over_a_socket(url: str) -> None:
    with FinRLEnv(base_url=url).sync() as env:
        result = env.reset(task="train/mixed/2/0", episode_id="e")
        assert len(result.observation.state) == 1 + 6 * 5
        with pytest.raises(ExecutionFailed, match="actions: 1 numbers, but there must be 5"):
            env.step(FinRLAction(actions=[1.0]))
        result = env.step(FinRLAction(actions=[0.5] * 5))
        assert isinstance(result.reward, float)
        state = env.state()
    assert (state.episode_id, state.day, state.task_id) == ("e", 1, "train/mixed/2/0")
    assert state.metrics.trades == 5


def test_mistakes_over_a_socket_are_said_and_the_session_goes_on(url: str) -> None:
    with FinRLEnv(base_url=url).sync() as env:
        with pytest.raises(ExecutionFailed, match="before reset"):
            env.step(FinRLAction(actions=[1.0]))
        with pytest.raises(ExecutionFailed, match="did you mean 'bull'"):
            env.reset(market="bul")
        assert env.reset().reward == 0.0
        assert env.step(FinRLAction(actions=[1.0])).observation.state[2] == 100


def test_the_configuration_can_be_asked_for(url: str) -> None:
    with httpx.Client(trust_env=False) as client:
        answer = client.get(f"{url}/config", timeout=20)
    assert answer.json() == {
        "stock_dim": 1,
        "initial_amount": 100_000,
        "action_space": 1,
        "state_space": 7,
        "tech_indicators": INDICATORS,
    }


def test_episodes_side_by_side_do_not_disturb_one_another() -> None:
    alone = [play(FinRLEnvironment(), market="mixed", seed=seed) for seed in range(3)]
    envs = [FinRLEnvironment() for _ in range(3)]
    choices = random.Random(5)
    seen = [[env.reset(market="mixed", seed=seed)] for seed, env in enumerate(envs)]
    while not seen[0][-1].done:
        action = choices.uniform(-1, 1)
        for one, env in zip(seen, envs, strict=True):
            one.append(act(env, action))
    assert seen == alone
