"""Steps of CartPole per second: over a socket, and with Gymnasium's own vector environments.

    python benchmarks/gymnasium_vector.py [--envs 1 8 64 256] [--rounds 3] [--seconds 2]

`sync` and `async` are `gymnasium.vector.SyncVectorEnv`, in this process, and `AsyncVectorEnv`, with
a process for each environment. `VectorEnv` and `GymnasiumVectorEnv` are ours, with one server in
another process; `2 workers` is the latter, with a server of two workers. All use the same actions,
and reset finished environments on the next step. CPU time is the sum of all processes. Progress
goes to stderr, the table to stdout, and with `--write` every round into
`results/gymnasium_vector.json`.

A step of CartPole takes microseconds, so this measures the cost of the transport.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine
from benchmarks.contenders import JSON, OURS, Contender
from benchmarks.report import RESULTS
from benchmarks.serving import TICKS, serving

from openenv import VectorEnv
from openenv.integrations.gymnasium import GymnasiumVectorEnv

NAME = "CartPole-v1"
WARM_UP = 20
BATCHES_AT_ONCE = 8
ACTIONS = 256  # batches of actions, drawn in advance

Row = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """A way to step many environments.

    Attributes:
        name: The name in the table.
        make: Makes the vector environment for a server's address and a number of environments.
        server: The server; None for Gymnasium's own vector environments.
        field: The name of the field of the actions, for an environment whose actions have fields.
    """

    name: str
    make: Callable[[str, int], Any]
    server: Contender | None = None
    field: str | None = None


def own(kind: str) -> Callable[[str, int], Any]:
    """Return a function that makes one of Gymnasium's own vector environments."""
    return lambda _, count: gymnasium.make_vec(NAME, num_envs=count, vectorization_mode=kind)


FILE = "cartpole_environment"
ONE = Contender("cartpole", OURS, JSON, file=FILE)
TWO = Contender("cartpole 2 workers", OURS, JSON, file=FILE, options=("--workers", "2"))
WAYS = (
    Way("sync", own("sync")),
    Way("async", own("async")),
    Way("VectorEnv", lambda url, count: VectorEnv(url, count), ONE, "action"),
    Way("GymnasiumVectorEnv", lambda url, count: GymnasiumVectorEnv(url, count), ONE),
    Way(
        "GymnasiumVectorEnv, 2 workers",
        lambda url, count: GymnasiumVectorEnv(url, count, connections=min(2, count)),
        TWO,
    ),
)


@contextmanager
def vector(way: Way, count: int) -> Iterator[Any]:
    """Open the environments, with their server if they need one, for a block."""
    with ExitStack() as stack:
        url = ""
        if way.server is not None:
            server = stack.enter_context(serving(way.server, machine_cores()))
            server.wait_until_healthy()
            url = server.url
        envs = way.make(url, count)
        stack.callback(envs.close)
        yield envs


def machine_cores() -> set[int]:
    """Return the cores that this process may use, which the server may use too."""
    return os.sched_getaffinity(0)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all running processes that it started."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            used[pid] = (int(fields[11]) + int(fields[12])) / TICKS
    ours = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= grown
    return sum(used[pid] for pid in ours)


def measured(way: Way, count: int, seconds: float) -> Row:
    """Step for some seconds, and count the steps of all environments together."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(2, size=(ACTIONS, count))
    actions = [batch if way.field is None else {way.field: batch} for batch in drawn]
    with vector(way, count) as envs:
        envs.reset(seed=0)
        for batch in actions[:WARM_UP]:
            envs.step(batch)
        cpu, began, batches = cpu_seconds(), time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            for _ in range(BATCHES_AT_ONCE):
                envs.step(actions[batches % ACTIONS])
                batches += 1
        wall, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    steps = batches * count
    row = {"way": way.name, "envs": count, "steps_per_s": steps / wall}
    return {**row, "cpu_us": cpu / steps * 1e6}


def table(rows: list[Row], points: list[int]) -> str:
    """Return the medians over the rounds as a table."""
    heads = [f"{point} envs: steps/s | CPU" for point in points]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' ---: | ---: |' * len(points)}"]
    for way in WAYS:
        cells = []
        for point in points:
            known = [row for row in rows if (row["way"], row["envs"]) == (way.name, point)]
            rate = statistics.median(row["steps_per_s"] for row in known)
            cpu = statistics.median(row["cpu_us"] for row in known)
            cells.append(f"{rate:,.0f} | {cpu:,.0f} µs")
        lines.append(f"| {way.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--envs", nargs="+", type=int, default=[1, 8, 64, 256], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=2.0, help="the measured window")
    parser.add_argument("--write", action="store_true", help="write every round as JSON")
    given = parser.parse_args()
    machine.raise_open_files()
    rows: list[Row] = []
    for point in given.envs:
        for number in range(given.rounds):
            for way in WAYS:
                row = {**measured(way, point, given.seconds), "round": number}
                print(
                    f"{way.name}, {point}: {row['steps_per_s']:,.0f}/s, {row['cpu_us']:.0f} µs",
                    file=sys.stderr,
                )
                rows.append(row)
    print(table(rows, given.envs))
    if given.write:
        content = {"date": time.strftime("%Y-%m-%d"), "machine": machine.describe(), "rows": rows}
        path = RESULTS / "gymnasium_vector.json"
        path.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
