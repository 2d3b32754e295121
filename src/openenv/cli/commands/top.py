"""`openenv top`: a live view of servers' activity."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.addresses import over_http
from openenv._internal.net.keys import checked_key
from openenv.cli._console import CommandError, emit, stderr, stdout
from openenv.cli._options import argument, option, takes_options
from openenv.cli._readings import (
    MetricsChange,
    MetricsReading,
    MetricsUnreadable,
    compare_readings,
    describe_duration,
    read_metrics,
)
from openenv.settings import api_key

if TYPE_CHECKING:
    from rich.console import Group

View = dict[str, "MetricsChange | MetricsUnreadable"]


@takes_options
def top(
    urls: list[str] = argument(..., metavar="URL...", help="Servers, as http://HOST:PORT."),
    interval: float = option(2.0, min=0.1, help="Seconds between two readings."),
    once: bool = option(False, help="Show a single interval, and exit."),
    as_json: bool = option(False, "--json", help="Print a line of JSON per interval."),
    api_key_file: Path | None = option(
        None, help="File with the servers' key; by default OPENENV_API_KEY."
    ),
) -> None:
    """Watch servers: sessions, steps per second, latency, errors, traffic.

    Examples:
        openenv top http://localhost:8000 --once
        openenv top http://10.0.0.1:8000 http://10.0.0.2:8000 --once --json
    """
    try:
        key = api_key() if api_key_file is None else api_key_file.read_text("utf-8").strip()
        key = None if key is None else checked_key(key)
    except OSError as error:
        raise CommandError(f"{api_key_file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        where = "OPENENV_API_KEY" if api_key_file is None else api_key_file
        raise CommandError(
            f"{where} does not hold a key: {error}", hint="it is to hold one key and nothing else"
        ) from error
    views = _views([over_http(url) for url in urls], key, interval)
    if as_json:
        for view in itertools.islice(views, 1) if once else views:
            emit({url: _as_data(row) for url, row in view.items()})
    elif once:
        stdout().print(_render_table(next(views)))
    else:
        _watch(views)


def _watch(views: Iterator[View]) -> None:
    from rich.live import Live

    if not stderr().is_terminal:
        for view in views:
            stderr().print(_render_table(view))
        return
    first = next(views)
    with Live(_render_table(first), console=stderr(), auto_refresh=False, screen=True) as live:
        for view in views:
            live.update(_render_table(view), refresh=True)


def _views(urls: list[str], key: str | None, interval: float) -> Iterator[View]:
    """Yield the activity of all servers, interval by interval."""

    def reading_of(url: str) -> MetricsReading | MetricsUnreadable:
        try:
            return read_metrics(url, key)
        except MetricsUnreadable as why:
            return why

    with ThreadPoolExecutor(len(urls)) as readers:
        before = dict(zip(urls, readers.map(reading_of, urls), strict=True))
        failures = [one for one in before.values() if isinstance(one, MetricsUnreadable)]
        if len(failures) == len(before):
            raise CommandError("; ".join(map(str, failures)), hint=failures[0].hint)
        while True:
            time.sleep(interval)
            after = dict(zip(urls, readers.map(reading_of, urls), strict=True))
            yield {url: _row(before[url], after[url]) for url in urls}
            before = after


def _row(
    before: MetricsReading | MetricsUnreadable, after: MetricsReading | MetricsUnreadable
) -> MetricsChange | MetricsUnreadable:
    if isinstance(after, MetricsUnreadable):
        return after
    return compare_readings(after if isinstance(before, MetricsUnreadable) else before, after)


COLUMNS = ("sessions", "queue", "steps/s", "p50", "p99", "in/s", "out/s")


def _as_data(row: MetricsChange | MetricsUnreadable) -> dict[str, Any]:
    return {"error": str(row)} if isinstance(row, MetricsUnreadable) else asdict(row)


def _render_table(view: View) -> Group:
    """Render a table of the servers, with the errors below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = [row for row in view.values() if isinstance(row, MetricsChange)]
    has_workers = any(row.workers_wanted for row in rows)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("server", overflow="fold")
    table.add_column("environment", overflow="fold")
    for name in (*COLUMNS, *(["workers"] if has_workers else [])):
        table.add_column(name, justify="right", no_wrap=True)
    wrong = []
    for url, row in view.items():
        name = url.partition("://")[2]
        if isinstance(row, MetricsUnreadable):
            table.add_row(name, "-")
            wrong.append(Text.assemble((f"{name}: ", "bold"), (str(row), "red")))
            continue
        workers = [_workers(row)] if has_workers else []
        cells = (
            f"{row.sessions}/{row.slots}",
            str(row.queue),
            f"{row.steps_per_s:,.0f}" if row.steps_per_s >= 10 else f"{row.steps_per_s:.1f}",
            describe_duration(row.latency_p50_s),
            describe_duration(row.latency_p99_s),
            _size(row.bytes_in_per_s),
            _size(row.bytes_out_per_s),
        )
        table.add_row(name, ", ".join(row.environments), *cells, *workers)
        if row.errors:
            counts = ", ".join(f"{code} {count}" for code, count in sorted(row.errors.items()))
            wrong.append(Text.assemble((f"{name}: ", "bold"), (f"errors: {counts}", "yellow")))
    return Group(table, *wrong)


def _workers(row: MetricsChange) -> str:
    died = f", {row.worker_deaths} died" if row.worker_deaths else ""
    return f"{row.workers_ready}/{row.workers_wanted}{died}" if row.workers_wanted else "-"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
