"""Stock trading by FinRL's rules, one step per day.

Liu et al. 2020, "FinRL: A Deep Reinforcement Learning Library for Automated Stock Trading in
Quantitative Finance", arXiv:2011.09607.
"""

from __future__ import annotations

import json
import math
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv.environment import Environment, scored
from openenv.errors import NotSupported, Refused
from openenv.reward import RewardSpec, Score

from ..models import FinRLAction, FinRLObservation, FinRLState, FinRLTask
from .configuration import MARKETS, Setup, make_setup, read_setup
from .indicators import FloatArray
from .market import Market, did_you_mean
from .metrics import compute_equal_weight_value, measure
from .synthetic import REGIMES, random_market, sine_market
from .tasks import SPLITS, TASK_RULES, find_task, make_task_market, tasks_of
from .trading import Book, Rules, trade

__all__ = ["FinRLEnvironment"]

# The entropy of a seed's market starts with this word, that of a task's market with another one.
_DOMAIN = 0
COMPONENTS = ("market", "commissions", "idle")
_CANNOT_TRADE = 1.0


@dataclass(frozen=True)
class _Setting:
    """The market and the rules of an episode.

    Attributes:
        market: The market with all of its days.
        seed: The seed of a random market; None for other markets and for tasks.
        task_id: The task's id, or None.
        start: The market's day on which the episode starts.
        days: The number of days of the episode.
        rules: The rules of trading.
    """

    market: Market
    seed: int | None
    task_id: str | None
    start: int
    days: int
    rules: Rules

    @property
    def closes(self) -> FloatArray:
        """The prices of the episode, of the shape (days, stocks)."""
        return self.market.close[self.start : self.start + self.days]


@dataclass
class _Progress:
    """The progress of an episode.

    Attributes:
        book: The trader's book.
        day: The day of the episode, from 0.
        values: The portfolio's value on each day so far.
        cash: The money not invested on each day so far.
        reward: The reward of the last step.
        done: Whether the episode is over.
        step_count: Steps since `reset`.
        episode_id: The id of the episode.
    """

    book: Book
    day: int
    values: list[float]
    cash: list[float]
    reward: float
    done: bool
    step_count: int
    episode_id: str


class FinRLEnvironment(Environment[FinRLAction, FinRLObservation, FinRLState]):
    """A portfolio of stocks that is traded once per day.

    The prices come from a file, a sine wave, or a random market. Only the prices of a random market
    are random, and the seed determines them. So seed and actions determine an episode.

    Args:
        config: The keys of `Configuration`. None takes the file that FINRL_CONFIG_PATH names, which
            is read once, or else the defaults: 100 days of one stock on a sine wave.

    Raises:
        ValueError: The configuration or its data cannot be used; the message says why.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    # `reset` declares the range, which depends on the days of the episode.
    REWARD = RewardSpec("per_step", components=COMPONENTS)

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._setup: Setup = read_setup() if config is None else make_setup(dict(config))
        self._setting: _Setting | None = None
        self._progress: _Progress | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        market: str | None = None,
        start: int | str | None = None,
        days: int | None = None,
        task: str | Mapping[str, Any] | None = None,
    ) -> FinRLObservation:
        """Start an episode on its first day, with the configured money.

        Args:
            seed: Determines a random market; any integer. None draws a seed. The data, the sine
                wave and tasks are the same for every seed.
            episode_id: Becomes `state.episode_id`; None generates one.
            market: ``sine``, ``bull``, ``bear``, ``sideways``, ``crash`` or ``mixed`` for this
                episode, with as many stocks as the server is configured for. None uses the
                configured one.
            start: The first day: its index in the market, from 0, or a date, which means the first
                day on or after it. None starts with the market.
            days: The number of days, at least 2. None continues to the market's end.
            task: A task or its id. It excludes `market`, `start` and `days`, and has its own rules.

        Returns:
            The first observation; its reward is 0.0, as public programs expect.

        Raises:
            Refused: The market, day or task is unknown. The running episode continues.
        """
        _check_type("seed", seed, int)
        _check_type("episode_id", episode_id, str)
        _check_type("market", market, str)
        _check_type("start", start, int, str)
        _check_type("days", days, int)
        setting = self._setting_for_reset(seed, market, start, days, task)
        book = Book(cash=setting.rules.cash, holdings=list(setting.rules.holdings))
        value = book.value(_prices(setting, 0))
        self._setting = setting
        self.REWARD = RewardSpec(  # type: ignore[misc]  # the range depends on the days
            "per_step", _range(setting, value), COMPONENTS
        )
        self._progress = _Progress(
            book=book,
            day=0,
            values=[value],
            cash=[book.cash],
            reward=0.0,
            done=False,
            step_count=0,
            episode_id=episode_id or str(uuid.uuid4()),
        )
        return scored(self._observe({"tickers": list(setting.market.tickers)}), 0.0)

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: FinRLAction
    ) -> FinRLObservation:
        """Trade at today's close, and continue with the next day.

        As in FinRL, one step follows the last day, which trades nothing and repeats the previous
        reward, unless `idle_last_step` is false.

        Raises:
            Refused: No episode is running, or the action has the wrong length or a number that is
                not finite. Nothing changes.
        """
        setting, progress = self._require_episode()
        _check_action(action.actions, setting.market.tickers)
        progress.step_count += 1
        last_day = setting.days - 1
        if progress.day == last_day:
            progress.done = True
            traded = [0.0] * len(setting.market.tickers)
            parts = {"idle": progress.reward}
        else:
            paid = progress.book.costs
            traded = _trade_today(setting, progress, action.actions)
            commissions = (paid - progress.book.costs) * setting.rules.reward_scaling
            parts = {"market": progress.reward - commissions, "commissions": commissions}
            progress.done = progress.day == last_day and not setting.rules.idle_last_step
        metadata: dict[str, Any] = {"traded": traded}
        if progress.done:
            metadata["metrics"] = self.state.metrics.model_dump()
        return scored(self._observe(metadata), Score(progress.reward, parts))

    @property
    def state(self) -> FinRLState:
        """The portfolio, and the results so far."""
        setting, progress = self._setting, self._progress
        if setting is None or progress is None:
            return FinRLState()
        return FinRLState(
            episode_id=progress.episode_id,
            step_count=progress.step_count,
            day=progress.day,
            days=setting.days,
            date=_date(setting, progress.day),
            tickers=list(setting.market.tickers),
            tech_indicators=list(setting.market.tech_indicators),
            cash=progress.book.cash,
            holdings=list(progress.book.holdings),
            portfolio_value=progress.values[-1],
            metrics=measure(progress.values, setting.closes[: progress.day + 1], progress.book),
            market=setting.market.name,
            task_id=setting.task_id,
        )

    def render(self) -> npt.NDArray[np.uint8]:
        """Draw the portfolio's value so far, beside that of equal parts of all stocks.

        Returns:
            A picture of the shape (height, width, 3).

        Raises:
            Refused: There is no episode yet.
            NotSupported: matplotlib is not installed.
        """
        setting, progress = self._setting, self._progress
        if setting is None or progress is None:
            raise Refused("render() was called before reset(): there is nothing to show")
        try:
            from .picture import draw
        except ModuleNotFoundError as error:
            raise NotSupported(
                "pictures need matplotlib: pip install 'openenv-finrl-env[plot]'", feature="render"
            ) from error
        days = slice(0, progress.day + 1)
        held = compute_equal_weight_value(setting.closes[days]) * progress.values[0]
        return draw(
            dates=setting.market.dates[setting.start :][days],
            values=progress.values,
            market=held.tolist(),
            cash=progress.cash,
            days=setting.days,
        )

    def snapshot(self) -> bytes:
        """Store the episode and the choice of its market, without the market's prices.

        Raises:
            Refused: There is no episode yet.
        """
        setting, progress = self._setting, self._progress
        if setting is None or progress is None:
            raise Refused("snapshot() was called before reset(): there is nothing to store")
        stored = _Snapshot(
            market=setting.market.name,
            seed=setting.seed,
            task_id=setting.task_id,
            start=setting.start,
            days=setting.days,
            fingerprint=_fingerprint(setting),
            progress=_StoredProgress(**asdict(progress)),
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored episode, on a server with the same configuration and data.

        Raises:
            ValueError: `snapshot` did not write these bytes, or the server has another
                configuration. The running episode continues.
        """
        stored = _Snapshot.model_validate_json(data)
        setting = self._setting_of_snapshot(stored)
        if _fingerprint(setting) != stored.fingerprint:
            raise ValueError("the episode was stored under another configuration or other data")
        self._progress = _restore_progress(stored.progress, setting)
        self._setting = setting

    # ------------------------------------------------------------------ tasks

    @staticmethod
    def list_splits() -> list[str]:
        """Return the splits: train and test."""
        return list(SPLITS)

    @staticmethod
    def list_tasks(split: str) -> list[FinRLTask]:
        """Return every task of a split.

        Raises:
            Refused: The split is unknown.
        """
        return tasks_of(split)

    @staticmethod
    def num_tasks(split: str) -> int:
        """Count the tasks of a split."""
        return len(tasks_of(split))

    @staticmethod
    def get_task(split: str, index: int) -> FinRLTask:
        """Return one task.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        tasks = tasks_of(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"the split {split!r} has tasks 0 to {len(tasks) - 1}, not {index}")
        return tasks[index]

    @staticmethod
    def get_task_range(
        split: str, start: int | None = None, stop: int | None = None
    ) -> list[FinRLTask]:
        """Return the tasks of the slice ``[start:stop]``."""
        return tasks_of(split)[start:stop]

    # ------------------------------------------------------------------ markets

    def _setting_for_reset(
        self,
        seed: int | None,
        market: str | None,
        start: int | str | None,
        days: int | None,
        task: str | Mapping[str, Any] | None,
    ) -> _Setting:
        if task is not None:
            given = {"market": market, "start": start, "days": days}
            too_many = [name for name, value in given.items() if value is not None]
            if too_many:
                raise Refused(f"a task chooses {' and '.join(too_many)} itself; leave it out")
            return _setting_of_task(_check_task(task))
        name = self._market_name(market)
        if name not in REGIMES:
            seed = None
        elif seed is None:
            seed = secrets.randbits(63)
        full = self._market(name, seed)
        first = _first_day(full, start)
        return _Setting(full, seed, None, first, _days(full, first, days), self._setup.rules)

    def _setting_of_snapshot(self, stored: _Snapshot) -> _Setting:
        if stored.task_id is not None:
            return _setting_of_task(find_task(stored.task_id))
        name = self._setup.market_name
        if stored.market != name:
            name = self._market_name(stored.market)
        if (name in REGIMES) != (stored.seed is not None):
            raise ValueError(f"a market {name!r} and a seed {stored.seed} do not go together")
        full = self._market(name, stored.seed)
        first = _first_day(full, stored.start)
        days = _days(full, first, stored.days)
        return _Setting(full, stored.seed, None, first, days, self._setup.rules)

    def _market_name(self, market: str | None) -> str:
        if market is None:
            return self._setup.market_name
        if market not in MARKETS:
            raise Refused(f"market: there is none called {market!r}{did_you_mean(market, MARKETS)}")
        return market

    def _market(self, name: str, seed: int | None) -> Market:
        setup = self._setup
        if setup.market is not None and setup.market.name == name:
            return setup.market
        indicators = setup.config.tech_indicator_list
        if seed is None:
            return sine_market(setup.stocks, indicators, setup.risk_indicator)
        return random_market(
            name,
            (_DOMAIN, abs(seed), int(seed < 0), list(REGIMES).index(name)),
            setup.config.market_days,
            setup.stocks,
            indicators,
            setup.risk_indicator,
        )

    # ------------------------------------------------------------------ playing

    def _require_episode(self) -> tuple[_Setting, _Progress]:
        if self._setting is None or self._progress is None:
            raise Refused("step() was called before reset(): there is nothing to trade yet")
        if self._progress.done:
            raise Refused("step() was called after done: the data are at their end, call reset()")
        return self._setting, self._progress

    def _observe(self, metadata: dict[str, Any]) -> FinRLObservation:
        setting, progress = self._setting, self._progress
        assert setting is not None and progress is not None
        day = setting.start + progress.day
        prices = _prices(setting, progress.day)
        indicators = setting.market.indicators[day].reshape(-1).tolist()
        return FinRLObservation(
            state=[progress.book.cash, *prices, *progress.book.holdings, *indicators],
            portfolio_value=progress.values[-1],
            date=_date(setting, progress.day),
            done=progress.done,
            metadata=metadata,
        )


class _StoredBook(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    cash: float  # rounding may leave it slightly below 0
    holdings: list[Annotated[float, Field(ge=0)]]
    costs: float = Field(ge=0)
    traded: float = Field(ge=0)
    trades: int = Field(ge=0)


class _StoredProgress(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    book: _StoredBook
    day: int = Field(ge=0)
    values: list[Annotated[float, Field(gt=0)]]
    cash: list[float]
    reward: float
    done: bool
    step_count: int = Field(ge=0)
    episode_id: str


class _Snapshot(BaseModel):
    """A stored episode."""

    model_config = ConfigDict(extra="forbid")

    market: str
    seed: int | None
    task_id: str | None
    start: int = Field(ge=0)
    days: int
    fingerprint: str
    progress: _StoredProgress


def _restore_progress(stored: _StoredProgress, setting: _Setting) -> _Progress:
    """Check a stored progress against its market.

    Raises:
        ValueError: The progress does not fit the market.
    """
    last_day, idle = setting.days - 1, setting.rules.idle_last_step
    steps = stored.day + int(stored.done and idle)
    fits = (
        stored.day <= last_day
        and len(stored.values) == len(stored.cash) == stored.day + 1
        and len(stored.book.holdings) == len(setting.market.tickers)
        and stored.step_count == steps
        and (stored.day == last_day or not stored.done)
        and (stored.done or idle or stored.day < last_day)
    )
    book = Book(**stored.book.model_dump())
    if not fits or book.value(_prices(setting, stored.day)) != stored.values[-1]:
        raise ValueError("the stored episode contradicts itself")
    return _Progress(**{**stored.model_dump(), "book": book})


def _fingerprint(setting: _Setting) -> str:
    """Return a text that is equal only for the same market and rules."""
    return f"{setting.market.fingerprint} {json.dumps(asdict(setting.rules))}"


def _check_task(task: str | Mapping[str, Any]) -> FinRLTask:
    if isinstance(task, str):
        return find_task(task)
    try:
        given = FinRLTask.model_validate(task)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("task", *first["loc"])))
        raise Refused(f"{where}: {first['msg']}, not {first['input']!r:.80}") from None
    known = find_task(given.id)
    if given != known:
        raise Refused(f"task: {given.id} is {known!r}, not {given!r}")
    return known


def _setting_of_task(task: FinRLTask) -> _Setting:
    return _Setting(make_task_market(task), None, task.id, task.start, task.days, TASK_RULES)


def _check_type(name: str, value: Any, *kinds: type) -> None:
    """Refuse an argument of a wrong type; None counts as not given."""
    if value is None or (isinstance(value, kinds) and not isinstance(value, bool)):
        return
    expected = " or ".join(kind.__name__ for kind in kinds)
    raise Refused(f"{name}: {value!r:.80} is not of type {expected}")


def _first_day(market: Market, start: int | str | None) -> int:
    if start is None:
        return 0
    first = _day_of_date(market, start) if isinstance(start, str) else start
    if not 0 <= first < len(market.dates) - 1:
        raise Refused(
            f"start: {start!r} is not among the days that leave one to trade for; they are 0 to "
            f"{len(market.dates) - 2}, or {market.dates[0]} to {market.dates[-2]}"
        )
    return first


def _day_of_date(market: Market, date: str) -> int:
    """Return the first day on or after a date; both are ISO 8601, which sorts as text."""
    return next((day for day, one in enumerate(market.dates) if one >= date), len(market.dates))


def _days(market: Market, first: int, days: int | None) -> int:
    left = len(market.dates) - first
    if days is None:
        return left
    if not 2 <= days <= left:
        raise Refused(
            f"days: {days}, but from day {first} on the market has {left}, and trading takes 2"
        )
    return days


def _check_action(actions: Sequence[float], tickers: Sequence[str]) -> None:
    if len(actions) != len(tickers):
        raise Refused(
            f"actions: {len(actions)} numbers, but there must be {len(tickers)}, one for each of "
            f"{', '.join(tickers)}"
        )
    wrong = [number for number in actions if not np.isfinite(number)]
    if wrong:
        raise Refused(f"actions: {wrong[0]} is not a finite number")


def _trade_today(setting: _Setting, progress: _Progress, actions: Sequence[float]) -> list[float]:
    """Trade, continue with the next day, and record the results."""
    day, rules, market = setting.start + progress.day, setting.rules, setting.market
    traded = trade(
        progress.book,
        actions,
        _prices(setting, progress.day),
        _tradable(market, day),
        rules,
        turbulent=_is_turbulent(market, day, rules, is_first=progress.day == 0),
    )
    progress.day += 1
    value = progress.book.value(_prices(setting, progress.day))
    progress.reward = (value - progress.values[-1]) * rules.reward_scaling
    progress.values.append(value)
    progress.cash.append(progress.book.cash)
    return traded


def _range(setting: _Setting, value: float) -> tuple[float, float] | None:
    """Return the lowest and highest possible reward of a day, or None beyond a float.

    The highest reward assumes that all money is in the stock that rises most, every day. The
    portfolio cannot borrow, so it cannot lose more than its value.
    """
    closes = setting.closes
    most, gain = max(value, 0.0), 0.0
    for rise in np.max(closes[1:] / closes[:-1], axis=1).tolist():
        gain = max(gain, most * (rise - 1.0))
        most *= max(rise, 1.0)
    scaling = setting.rules.reward_scaling
    low, high = sorted((-most * scaling, gain * scaling))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _tradable(market: Market, day: int) -> list[bool]:
    """Return whether each stock is traded: as in FinRL, not if its first indicator is 1."""
    if not market.tech_indicators:
        return [True] * len(market.tickers)
    tradable: list[bool] = (market.indicators[day, 0] != _CANNOT_TRADE).tolist()
    return tradable


def _is_turbulent(market: Market, day: int, rules: Rules, *, is_first: bool) -> bool:
    """Return whether the risk reaches the threshold; as in FinRL, the first day has risk 0."""
    if rules.turbulence_threshold is None or market.risk is None:
        return False
    risk = 0.0 if is_first else float(market.risk[day])
    return risk >= rules.turbulence_threshold


def _prices(setting: _Setting, day: int) -> list[float]:
    prices: list[float] = setting.market.close[setting.start + day].tolist()
    return prices


def _date(setting: _Setting, day: int) -> str:
    return setting.market.dates[setting.start + day]
