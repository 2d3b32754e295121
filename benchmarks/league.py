"""Measure OpenEnv and what one would pick instead, at the same trivial environment.

    python benchmarks/league.py [--only NAME ...] [--workloads NAME ...] [--sessions N]
                                [--seconds S] [--rounds R] [--quick] [--list] [--json]

Each contender is driven by its own client, from a virtual environment of its own below `.peers/`.
Rounds are interleaved, and every measurement has a fresh server. Progress goes to stderr, tables to
stdout. A whole run writes `results/league.json` and a section of `RESULTS.md`; a run that options
cut short writes to `build/quick/`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import league_report, machine
from benchmarks.contenders import OURS
from benchmarks.import_cost import our_version
from benchmarks.league_contenders import (
    CARTPOLES,
    CONTENDERS,
    ROOT,
    WORKLOADS,
    Contender,
    Unavailable,
    plain,
)
from benchmarks.load import BUILD
from benchmarks.report import RESULTS, commit
from benchmarks.serving import LOGS, free_port

SCRATCH = BUILD / "quick"
INTERRUPTED = 130  # a shell's exit status for a program that Ctrl-C ended
CARTPOLE = "cartpole"
CHURN_SESSIONS = 64
HEALTH_EVERY_S = 0.01
STOPS_WITHIN_S = 10
CLOCK_AFTER_NAME = 19  # the start time of a process, a field of /proc/PID/stat after the name

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """The amount of measurement.

    Attributes:
        rounds: How often everything is measured.
        sessions: Sessions of `cold` and `warm`; `churn` and `kept` have at most 64 of them.
        episodes: Episodes of `churn`.
        seconds: Length of the window of `warm`, `kept` and `cartpole`.
        environments: Numbers of environments of `cartpole`.
        limit_s: Time limit of one measurement, after which it has failed.
    """

    rounds: int = 3
    sessions: int = 256
    episodes: int = 2000
    seconds: float = 3.0
    environments: tuple[int, ...] = (1, 8, 64, 256)
    limit_s: float = 300.0


QUICK = Plan(rounds=1, sessions=32, episodes=200, seconds=1.0, environments=(1, 8), limit_s=120.0)


class Failed(Exception):
    """A measurement failed; the text says why."""


# ------------------------------------------------------------------ processes


def _stat(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _tree(root: int) -> dict[int, str]:
    """Return a process and its descendants, with the times at which they started."""
    children: dict[int, list[int]] = {}
    started: dict[int, str] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # the process has ended meanwhile
            fields = _stat(name)
            children.setdefault(int(fields[1]), []).append(int(name))
            started[int(name)] = fields[CLOCK_AFTER_NAME]
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return {pid: started[pid] for pid in tree if pid in started}


def _end(process: subprocess.Popen[Any], *, at_once: bool = False) -> None:
    """End a process and its descendants, some of which are in groups of their own."""
    tree = _tree(process.pid)
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL if at_once else signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOPS_WITHIN_S)
    for pid, started in tree.items():
        with suppress(OSError):
            if _stat(pid)[CLOCK_AFTER_NAME] == started:  # and not another process by its number
                os.kill(pid, signal.SIGKILL)
    process.wait(STOPS_WITHIN_S)


@contextmanager
def _serving(contender: Contender) -> Iterator[tuple[str, int | None]]:
    """Serve a contender for a block; yield its address and the server's process id.

    Raises:
        Failed: The server did not start.
    """
    if not contender.server:
        yield "", None
        return
    LOGS.mkdir(parents=True, exist_ok=True)
    port, path = free_port(), LOGS / f"league-{contender.name.replace(' ', '-')}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            contender.server_command(port),
            env=contender.environment(),
            cwd=BUILD,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + contender.starts_within_s
        while not _answers(port, contender.health):
            if process.poll() is not None or time.monotonic() > until:
                raise Failed(f"the server did not start: {_last_line(path.read_text())}")
            time.sleep(HEALTH_EVERY_S)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        _end(process)


def _answers(port: int, path: str) -> bool:
    try:
        if not path:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return plain(lines[-1])[:300] if lines else "it said nothing"


# ------------------------------------------------------------------ measuring


def measured(contender: Contender, workload: str, sessions: int, plan: Plan) -> Row:
    """Measure one contender at one workload, with a fresh server.

    Raises:
        Failed: The server did not start, or the client failed or took too long.
    """
    limit = contender.limit(workload)
    episodes = plan.episodes
    if limit is not None:
        sessions = min(sessions, limit.sessions or sessions)
        episodes = min(episodes, limit.episodes or episodes)
    with _serving(contender) as (url, server):
        order = {
            "url": url,
            "workload": workload,
            "sessions": sessions,
            "episodes": episodes,
            "seconds": plan.seconds,
            "server": server,
            "how": contender.how,
        }
        process = subprocess.Popen(
            contender.client_command(json.dumps(order)),
            env=contender.environment(),
            cwd=BUILD,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=plan.limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {plan.limit_s:g} s") from None
        finally:
            _end(process, at_once=True)
    if process.returncode:
        raise Failed(f"the client failed: {_last_line(errors)}")
    found: Row = json.loads(output.strip().splitlines()[-1])
    cpu = found["client_cpu_s"] + found["server_cpu_s"]
    return {
        **found,
        "sessions": sessions,
        "steps_per_s": found["steps"] / found["wall_s"],
        "episodes_per_s": found["episodes"] / found["wall_s"],
        "cpu_us": cpu / found["steps"] * 1e6,
    }


def turns(
    contenders: Sequence[Contender], workloads: Sequence[str], plan: Plan
) -> Iterator[tuple[Contender, str, int, int]]:
    """Yield contender, workload, sessions and round, every contender once in each round."""
    for number in range(plan.rounds):
        for workload in workloads:
            if workload == CARTPOLE:
                for count in plan.environments:
                    for contender in contenders:
                        if contender in CARTPOLES:
                            yield contender, workload, count, number
                continue
            is_large = workload in ("cold", "warm")
            count = plan.sessions if is_large else min(CHURN_SESSIONS, plan.sessions)
            for contender in contenders:
                if contender in CONTENDERS:
                    yield contender, workload, count, number


def _unavailable(contender: Contender) -> str | None:
    """Install a contender's packages if they are missing; return why that failed, or None."""
    try:
        contender.python()
    except Unavailable as reason:
        return f"not installed: {reason}"
    return None


def run(contenders: Sequence[Contender], workloads: Sequence[str], plan: Plan) -> list[Row]:
    """Measure everything; a row that failed, or that cannot be, has its `reason`."""
    unavailable = {c.name: reason for c in contenders if (reason := _unavailable(c))}
    rows: list[Row] = []
    for contender, workload, sessions, number in turns(contenders, workloads, plan):
        row: Row = {"contender": contender.name, "workload": workload, "asked": sessions}
        row["round"] = number
        reason = unavailable.get(contender.name) or contender.cannot.get(workload)
        if reason is not None:
            row["reason"] = reason
        else:
            try:
                row |= measured(contender, workload, sessions, plan)
            except Failed as failure:
                row["reason"] = str(failure)
        print(league_report.one_line(row), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


# ------------------------------------------------------------------ the whole


def described(contender: Contender, workloads: Sequence[str]) -> Row:
    """Return what a reader needs to repeat a contender's measurement."""
    try:
        versions = contender.versions()
    except (Unavailable, subprocess.CalledProcessError):
        versions = {}
    if contender.whose == OURS and contender.peer is None:
        versions |= {"openenv": our_version(), "commit": commit()}
    with suppress(Unavailable):
        server = [_shown(word) for word in contender.server_command(8000)]
        client = [_shown(word) for word in contender.client_command("{order}")]
        return {
            "what": contender.what,
            "versions": versions,
            "server": shlex.join(server),
            "client": shlex.join(client),
            "variables": contender.variables,
            "limits": {
                name: asdict(limit)
                for name in workloads
                if (limit := contender.limit(name)) is not None
            },
        }
    return {"what": contender.what, "versions": {}, "server": "", "client": "", "limits": {}}


def _shown(word: str) -> str:
    """Return a word of a command without this machine's paths."""
    word = word.replace(f"{ROOT}/", "")
    return "python" if word == sys.executable else word


def _parse() -> argparse.Namespace:
    names = [contender.name for contender in (*CONTENDERS, *CARTPOLES)]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help="only these contenders"
    )
    parser.add_argument(
        "--workloads",
        nargs="+",
        choices=(*WORKLOADS, CARTPOLE),
        metavar="NAME",
        help=f"only these: {', '.join((*WORKLOADS, CARTPOLE))}",
    )
    parser.add_argument("--sessions", type=int, metavar="N", help="sessions of cold and warm")
    parser.add_argument("--episodes", type=int, metavar="N", help="episodes of churn")
    parser.add_argument("--seconds", type=float, metavar="S", help="the measured window")
    parser.add_argument("--rounds", type=int, metavar="R", help="how often all is measured")
    parser.add_argument("--limit", type=float, metavar="S", help="time limit of a measurement")
    parser.add_argument("--quick", action="store_true", help="one short round of fewer sessions")
    parser.add_argument("--list", action="store_true", help="list the contenders, and no more")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else Plan()
    given = {
        "rounds": options.rounds,
        "sessions": options.sessions,
        "episodes": options.episodes,
        "seconds": options.seconds,
        "limit_s": options.limit,
    }
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    if options.sessions is not None:
        points = tuple(count for count in plan.environments if count <= options.sessions)
        plan = replace(plan, environments=points or (options.sessions,))
    return plan


def _list() -> None:
    for contender in (*CONTENDERS, *CARTPOLES):
        packages = " ".join(contender.peer.packages) if contender.peer else contender.whose
        print(f"{contender.name}: {contender.what} ({packages})")
        for workload, limit in contender.limits.items():
            cut = [f"{limit.sessions} sessions"] if limit.sessions else []
            cut += [f"{limit.episodes} episodes"] if limit.episodes else []
            print(f"    {workload}: at most {' and '.join(cut)}: {limit.why}")
        for workload, reason in contender.cannot.items():
            print(f"    {workload}: not possible: {reason}")


def main() -> int:
    options = _parse()
    if options.list:
        _list()
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine.raise_open_files()
    BUILD.mkdir(parents=True, exist_ok=True)
    plan = _plan(options)
    contenders = [
        c for c in (*CONTENDERS, *CARTPOLES) if not options.only or c.name in options.only
    ]
    workloads = options.workloads or [*WORKLOADS, CARTPOLE]
    try:
        rows = run(contenders, workloads, plan)
    except KeyboardInterrupt:  # every process has been ended before this point
        return INTERRUPTED
    taking_part = {row["contender"] for row in rows}
    stored = {
        "part": "league",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "plan": asdict(plan),
        "command": shlex.join(["python", "benchmarks/league.py", *sys.argv[1:]]),
        "contenders": {
            c.name: described(c, workloads) for c in contenders if c.name in taking_part
        },
        "rows": rows,
    }
    shortened = (options.only, options.workloads, options.sessions, options.seconds)
    is_whole = not any((*shortened, options.episodes, options.quick, options.limit))
    folder = RESULTS if is_whole and plan.rounds >= Plan().rounds else SCRATCH
    league_report.write(folder, stored, prints=not options.json)
    if options.json:
        print(json.dumps(stored, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
