"""The task set: windows of random markets of every regime, the same on every server.

Train and test share no market, and `reset(seed=...)` never makes one of these markets.
"""

from __future__ import annotations

from openenv.errors import Refused

from ..models import FinRLTask
from .configuration import INDICATORS
from .market import Market, did_you_mean
from .synthetic import REGIMES, random_market
from .trading import Rules

__all__ = ["SPLITS", "TASK_RULES", "find_task", "make_task_market", "tasks_of"]

SPLITS = {"train": 10, "test": 5}
"""The number of markets of each regime in a split."""

MARKET_DAYS = 252
WINDOW_DAYS = 126
STARTS = (0, MARKET_DAYS - WINDOW_DAYS)
STOCKS = 5

# The entropy of a task's market starts with this word, that of a seed's market with another one.
_DOMAIN = 1

TASK_RULES = Rules(
    hmax=100,
    cash=100_000,
    holdings=(0.0,) * STOCKS,
    buy_costs=(0.001,) * STOCKS,
    sell_costs=(0.001,) * STOCKS,
    reward_scaling=1e-4,
    turbulence_threshold=None,
    idle_last_step=False,
)
"""The rules of every task, independent of the configuration, so that scores can be compared."""


def _all_tasks() -> dict[str, list[FinRLTask]]:
    return {
        split: [
            FinRLTask(
                id=f"{split}/{market}/{number}/{start}",
                split=split,
                market=market,
                number=number,
                start=start,
                days=WINDOW_DAYS,
                stocks=STOCKS,
            )
            for market in REGIMES
            for number in range(count)
            for start in STARTS
        ]
        for split, count in SPLITS.items()
    }


_TASKS = _all_tasks()
_BY_ID = {task.id: task for tasks in _TASKS.values() for task in tasks}


def tasks_of(split: str) -> list[FinRLTask]:
    """Return the tasks of a split.

    Raises:
        Refused: The split is unknown.
    """
    if split not in _TASKS:
        raise Refused(f"split: there is none called {split!r}{did_you_mean(split, list(SPLITS))}")
    return list(_TASKS[split])


def find_task(task_id: str) -> FinRLTask:
    """Find a task by its id.

    Raises:
        Refused: The task is unknown.
    """
    if task_id not in _BY_ID:
        hint = did_you_mean(task_id, list(_BY_ID))
        raise Refused(f"task: there is none with the id {task_id!r}{hint}")
    return _BY_ID[task_id]


def make_task_market(task: FinRLTask) -> Market:
    """Make the market of a task, the same each time."""
    entropy = (
        _DOMAIN,
        list(SPLITS).index(task.split),
        list(REGIMES).index(task.market),
        task.number,
    )
    return random_market(task.market, entropy, MARKET_DAYS, task.stocks, INDICATORS)
