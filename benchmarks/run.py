"""Measure our package, the public package and the bare limit side by side; see README.md.

    python benchmarks/run.py [--quick] [--only PART ...] [--rounds N] [--check]

Progress goes to stderr, tables to stdout. The results of a whole part go into `results/` and
`RESULTS.md`; those of a part that options cut short go into `build/quick/`. With `--check` the exit
status is 1 if a measured target is missed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import atari, machine, measure, report
from benchmarks.contenders import CLIENTS, COLDS, ECHOES, FRAMES, TOOLS, VECTORS
from benchmarks.load import BUILD, Load, compiled
from benchmarks.measure import FULL, QUICK, Bench, Plan, Row
from benchmarks.peer import peer_python

INTERRUPTED = 130  # a shell's exit status for a program that Ctrl-C ended
SCRATCH = BUILD / "quick"
PARTS = {**measure.PARTS, **atari.PARTS}
NAMES = [server.name for server in (*ECHOES, *FRAMES)]
NAMES += [tools.name for tools in TOOLS]
NAMES += [client.name for client in (*CLIENTS, *COLDS, *(client for client, _ in VECTORS))]
NAMES += [client.name for client in atari.CLIENTS]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer points, one short round")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument(
        "--contender", nargs="+", default=[], choices=NAMES, metavar="NAME", help=", ".join(NAMES)
    )
    parser.add_argument("--sessions", nargs="+", type=int, metavar="N", help="only these points")
    parser.add_argument("--seconds", type=float, help="the measured window")
    parser.add_argument("--report", action="store_true", help="write RESULTS.md anew, and no more")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    return parser.parse_args()


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else FULL
    if options.rounds:
        plan = replace(plan, rounds=options.rounds, starts=options.rounds)
    if options.seconds:
        plan = replace(plan, window_s=options.seconds)
    if options.sessions:
        points = tuple(options.sessions)
        plan = replace(plan, sessions=points, memory_sessions=points, open_sessions=points[0])
    return plan


def _parts(options: argparse.Namespace) -> list[str]:
    if options.only:
        return list(options.only)
    return [part for part in PARTS if part != "scale" or not options.quick]


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (
        TextColumn("{task.fields[part]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    # Refreshed manually: a drawing thread would take CPU time of the load's core.
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        yield progress


def _measure(part: str, bench: Bench, progress: Progress) -> list[Row]:
    task = progress.add_task("starting servers", part=part, total=None)

    def tell(what: str, number: int, total: int) -> None:
        progress.update(task, description=what, completed=number, total=total, refresh=True)

    progress.refresh()
    rows = []
    for row in PARTS[part](replace(bench, tell=tell)):
        rows.append(row)
        progress.console.print(
            f"[bold]{part}[/] {report.one_line(part, row)}", highlight=False, soft_wrap=True
        )
    progress.remove_task(task)
    return rows


def _run(options: argparse.Namespace) -> bool:
    peer_python()
    program = compiled()
    machine.raise_open_files()
    server_core, load_core = machine.cores()
    bench = Bench(
        plan=_plan(options),
        load=Load(program, load_core),
        server_cores={server_core},
        all_cores=os.sched_getaffinity(0),
        only=frozenset(options.contender),
        tell=lambda *_: None,
    )
    os.sched_setaffinity(0, {load_core})
    is_whole = not (options.quick or options.contender or options.sessions or options.seconds)
    folder = report.RESULTS if is_whole else SCRATCH
    with _progress() as progress:
        for part in _parts(options):
            report.store(folder, part, bench.plan, _measure(part, bench, progress))
    return report.write(folder, _parts(options))


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        is_met = report.write(report.RESULTS, list(PARTS)) if options.report else _run(options)
    except KeyboardInterrupt:  # every server has been ended before this point
        return INTERRUPTED
    return int(options.check and not is_met)


if __name__ == "__main__":
    sys.exit(main())
