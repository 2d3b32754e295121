"""Real prices from a file: CSV, or Parquet if pyarrow is installed.

A row is one stock on one day. Rows must be sorted by date, and every day must have the same stocks
in the same order, as FinRL's preprocessing writes them. This module does not fill in, drop or sort
anything. It reports errors with the row.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from .indicators import Bars, FloatArray, indicator, needs_highs_and_lows, turbulence
from .market import TURBULENCE, Market, did_you_mean

__all__ = ["Table", "make_table_market", "read_table"]

_ALWAYS = ("date", "tic", "close")
_FEWEST_DAYS = 2
_LONGEST_HOLIDAYS = timedelta(days=14)
_LONGEST_GAP = 10  # times the usual distance of two days in the file


class Table(NamedTuple):
    """The columns of a file.

    Attributes:
        path: The file.
        columns: The values of each column, by name.
        first_row: The number of the first row of values for people: 2 in a CSV, below the header.
    """

    path: Path
    columns: Mapping[str, Sequence[Any]]
    first_row: int

    def where(self, row: int) -> str:
        """Describe a row by its number, its date and its stock."""
        place = f"{self.path}, row {row + self.first_row}"
        return f"{place} ({self.columns['date'][row]}, {self.columns['tic'][row]})"


def read_table(path: Path) -> Table:
    """Read a file, by its suffix: ``.parquet``, or else CSV.

    Raises:
        ValueError: The file is missing or cannot be read, or pyarrow is not installed.
    """
    if not path.is_file():
        raise ValueError(f"data_path: there is no file {path} (working directory {Path.cwd()})")
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def make_table_market(
    table: Table,
    tech_indicators: Sequence[str],
    risk_indicator: str | None,
    longest_gap: timedelta | None = None,
) -> Market:
    """Check a table and make a market from it.

    Args:
        table: The columns of a file.
        tech_indicators: Columns; those that the table does not have are computed.
        risk_indicator: A column, or ``turbulence``, which is computed if the table has no such
            column. None for no measure of risk.
        longest_gap: The longest time between two days. None allows two weeks, or ten times the
            usual distance, whichever is longer.

    Raises:
        ValueError: Something is wrong with the table; the text says what and where.
    """
    _check_columns(table, tech_indicators, risk_indicator)
    days, tickers = _days_and_tickers(table)
    _check_gaps(table, days, len(tickers), longest_gap)
    shape = len(days), len(tickers)
    bars = _bars(table, tech_indicators, shape)
    indicators = [_indicator(table, name, bars, shape) for name in tech_indicators]
    return Market(
        name="data",
        tickers=tickers,
        dates=tuple(_shown(value) for value in table.columns["date"][:: shape[1]]),
        tech_indicators=tuple(tech_indicators),
        close=bars.close,
        indicators=np.stack(indicators, axis=1)
        if indicators
        else np.empty((shape[0], 0, shape[1])),
        risk=None if risk_indicator is None else _risk(table, risk_indicator, bars, shape),
    )


# ------------------------------------------------------------------------- reading


def _read_csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"data_path: {path} cannot be read as CSV: {error}") from error
    while lines and not lines[-1]:
        lines.pop()
    header = lines[0] if lines else []
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: the header names a column twice: {', '.join(header)}")
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise ValueError(
                f"{path}, row {number}: {len(line)} values, but the header has {len(header)}"
            )
    values = list(zip(*lines[1:], strict=True)) or [()] * len(header)
    return Table(path, dict(zip(header, values, strict=True)), first_row=2)


def _read_parquet(path: Path) -> Table:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"data_path: {path} is Parquet, which needs pyarrow: "
            "pip install 'openenv-finrl-env[parquet]'"
        ) from error
    try:
        columns = parquet.read_table(path).to_pydict()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ValueError(f"data_path: {path} cannot be read as Parquet: {error}") from error
    return Table(path, columns, first_row=1)


# ------------------------------------------------------------------------- checking


def _check_columns(table: Table, indicators: Sequence[str], risk: str | None) -> None:
    present = list(table.columns)
    needed = [*_ALWAYS]
    for name in indicators:
        if name in table.columns:
            continue
        high_and_low = needs_highs_and_lows(name)
        if high_and_low is None:
            needed.append(name)
        elif high_and_low:
            needed += ["high", "low"]
    if risk is not None and risk != TURBULENCE:
        needed.append(risk)
    missing = [name for name in dict.fromkeys(needed) if name not in table.columns]
    if missing:
        hint = did_you_mean(missing[0], present)
        raise ValueError(f"{table.path}: no column {', '.join(map(repr, missing))}{hint}")


def _days_and_tickers(table: Table) -> tuple[list[datetime], tuple[str, ...]]:
    """Return the days, ascending, and the stocks, which are the same on every day."""
    days: list[datetime] = []
    tickers: list[str] = []
    begin = 0
    written: Any = None
    for row, value in enumerate([*table.columns["date"], None]):
        if value == written and value is not None:
            continue
        if row > 0:
            here = [str(tic) for tic in table.columns["tic"][begin:row]]
            tickers = tickers or here
            _check_stocks(table, begin, here, tickers)
        if value is not None:
            days.append(_later_day(table, row, value, days))
        begin, written = row, value
    if len(days) < _FEWEST_DAYS:
        raise ValueError(
            f"{table.path}: {len(days)} days, but trading takes {_FEWEST_DAYS} or more"
        )
    return days, tuple(tickers)


def _later_day(table: Table, row: int, value: Any, days: Sequence[datetime]) -> datetime:
    day = _day(table, row, value)
    if days and day <= days[-1]:
        raise ValueError(
            f"{table.where(row)}: this date comes after {days[-1].isoformat(' ')}; rows must be "
            "sorted by date, then by tic"
        )
    return day


def _day(table: Table, row: int, value: Any) -> datetime:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return datetime.fromisoformat(str(value)).replace(tzinfo=None)
    except ValueError:
        raise ValueError(
            f"{table.where(row)}: the date is {value!r}, not one such as 2024-01-31"
        ) from None


def _shown(value: Any) -> str:
    """Return a date as text, without a time of midnight."""
    return str(value).removesuffix(" 00:00:00")


def _check_stocks(table: Table, begin: int, here: list[str], tickers: list[str]) -> None:
    if len(set(here)) < len(here):
        twice = next(tic for tic in here if here.count(tic) > 1)
        raise ValueError(f"{table.where(begin)}: this day has two rows of {twice}")
    if here == tickers:
        return
    missing = [tic for tic in tickers if tic not in here]
    more = [tic for tic in here if tic not in tickers]
    if missing or more:
        words = [f"no row of {', '.join(missing)}"] * bool(missing)
        words += [f"rows of {', '.join(more)}"] * bool(more)
        raise ValueError(
            f"{table.where(begin)}: unlike the first day, this day has {' and '.join(words)}"
        )
    raise ValueError(
        f"{table.where(begin)}: this day has its stocks in the order {', '.join(here)}, the first "
        f"day in the order {', '.join(tickers)}; rows must be sorted by date, then by tic"
    )


def _check_gaps(
    table: Table, days: Sequence[datetime], stocks: int, longest: timedelta | None
) -> None:
    distances = [later - day for day, later in pairwise(days)]
    if longest is None:
        usual = timedelta(seconds=median(d.total_seconds() for d in distances))
        longest = max(_LONGEST_HOLIDAYS, _LONGEST_GAP * usual)
    for number, distance in enumerate(distances, 1):
        if distance > longest:
            raise ValueError(
                f"{table.where(number * stocks)}: a gap of {distance.days} days since "
                f"{days[number - 1].date()}; set max_gap_days in the configuration if it is meant"
            )


# ------------------------------------------------------------------------- arrays


def _bars(table: Table, indicators: Sequence[str], shape: tuple[int, int]) -> Bars:
    close = _positive(table, "close", shape)
    computed = [name for name in indicators if name not in table.columns]
    if not any(map(needs_highs_and_lows, computed)):
        return Bars(close, close, close)
    return Bars(_positive(table, "high", shape), _positive(table, "low", shape), close)


def _indicator(table: Table, name: str, bars: Bars, shape: tuple[int, int]) -> FloatArray:
    if name in table.columns:
        return _numbers(table, name, shape)
    values = indicator(name, bars)
    assert values is not None  # by `_check_columns`
    return values


def _risk(table: Table, name: str, bars: Bars, shape: tuple[int, int]) -> FloatArray:
    if name not in table.columns:
        return turbulence(bars.close)
    values = _numbers(table, name, shape)
    different = np.argwhere(values != values[:, :1])
    if len(different):
        day, stock = different[0]
        raise ValueError(
            f"{table.where(day * shape[1] + stock)}: {name} is {values[day, stock]:g}, and "
            f"{values[day, 0]:g} for another stock of the day; it must be the same for all"
        )
    return values[:, 0]


def _positive(table: Table, name: str, shape: tuple[int, int]) -> FloatArray:
    values = _numbers(table, name, shape)
    wrong = np.argwhere(values.reshape(-1) <= 0)
    if len(wrong):
        row = int(wrong[0, 0])
        raise ValueError(f"{table.where(row)}: {name} is {table.columns[name][row]}, not above 0")
    return values


def _numbers(table: Table, name: str, shape: tuple[int, int]) -> FloatArray:
    values = table.columns[name]
    try:
        array = np.array([float(value) for value in values])
    except (TypeError, ValueError):
        array = np.array([_number(value) for value in values])
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"{table.where(row)}: {name} is {values[row]!r}, not a finite number")
    return array.reshape(shape)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
