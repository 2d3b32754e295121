"""A program that plays FinRL's own trading environment, and prints the results.

`python play_original.py` reads a JSON list of episodes from its standard input. Each has
`data_path`, a CSV file; `arguments`, those of FinRL's `StockTradingEnv`; and `actions`. It prints
the states, rewards and ends of the reset and of each step. It needs FinRL, not OpenEnv.

FinRL's packages import brokers, downloaders and trainers, so the module is run by its path. From
stable-baselines3 it imports only a wrapper for training, which is not called.
"""

# mypy: ignore-errors
# pyright: reportMissingImports=false

import importlib.metadata
import json
import runpy
import sys
import types

import numpy as np
import pandas as pd

MODULE = "finrl/meta/env_stock_trading/env_stocktrading.py"


def stock_trading_env():
    for parent in ("stable_baselines3", "stable_baselines3.common"):
        sys.modules[parent] = types.ModuleType(parent)
    wrappers = types.ModuleType("stable_baselines3.common.vec_env")
    vars(wrappers)["DummyVecEnv"] = None
    sys.modules[wrappers.__name__] = wrappers
    path = importlib.metadata.distribution("finrl").locate_file(MODULE)
    return runpy.run_path(str(path))["StockTradingEnv"]


def play(env_cls, episode):
    frame = pd.read_csv(episode["data_path"], float_precision="round_trip")
    frame.index = frame.date.factorize()[0]
    env = env_cls(df=frame, print_verbosity=10**9, **episode["arguments"])
    state, _ = env.reset()
    states, rewards, ends = [list(state)], [0.0], [False]
    for actions in episode["actions"]:
        state, reward, done, _, _ = env.step(np.array(actions))
        states.append(list(state))  # a copy, since the next step changes the list
        rewards.append(reward)
        ends.append(bool(done))
    return {
        "states": states,
        "rewards": rewards,
        "done": ends,
        "costs": env.cost,
        "dates": [str(date) for date in env.date_memory],
        "values": env.asset_memory,
    }


def main():
    env_cls = stock_trading_env()
    played = [play(env_cls, episode) for episode in json.load(sys.stdin)]
    print(json.dumps(played, default=float))  # noqa: T201


if __name__ == "__main__":
    main()
