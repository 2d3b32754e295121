"""The cost of a sandbox: of its start, and of code that runs in it over a socket.

    python benchmarks/sandbox.py [--only start code] [--rounds 3] [--seconds 3] [--write]

`start` is the time to the answer of a first piece of code, for each kind of sandbox of this
machine: a new sandbox (`cold`), and one kept ready in a pool (`warm`). For comparison, it also has
Python alone, and Python in a bare bubblewrap. `code` is the rate of code pieces of 8 sessions over
the socket, in the coding environment of both packages: ours in a sandbox of each kind, and with
smolagents' interpreter in the server's process, which is all that the public package has.

Server and load have a core each; the sandboxes run on the server's core. Progress goes to stderr,
the tables to stdout, and with `--write` every round into `results/sandbox.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine
from benchmarks.contenders import OURS, PUBLIC, RESET, Contender, Frames
from benchmarks.load import Load, compiled
from benchmarks.peer import PUBLIC as PUBLIC_PACKAGE
from benchmarks.peer import peer_python
from benchmarks.report import RESULTS
from benchmarks.serving import serving

from openenv.sandbox import Interpreter, Pool, Sandbox, kinds_of_this_machine
from openenv.sandbox.kinds import PYTHON

ROOT = Path(__file__).resolve().parents[1]
CODING_PEER = ROOT / ".peers" / "coding"
PACKAGES = (PUBLIC_PACKAGE, f"smolagents=={metadata.version('smolagents')}")
SESSIONS = 8
WARM_UP_S = 1.0
WARM = 4  # sandboxes in the pool
FILL_TIMEOUT_S = 60.0

Row = dict[str, Any]

# The code of a step, and the required part of the answer.
PIECES = {
    "print": ("x = 6\nprint(x * 7)", '"stdout":"42\\n'),
    "a loop": (
        "total = 0\nfor n in range(1000):\n    total += n * n\nprint(total)",
        '"stdout":"332833500\\n',
    ),
}


# ------------------------------------------------------------------ starts


def seconds_of(command: list[str]) -> float:
    """Return the duration of a command in seconds."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def bare_python() -> float:
    return seconds_of([PYTHON, "-c", "print(42)"])


def bare_bwrap() -> float:
    """Run Python with namespaces and a read-only root, by bubblewrap's command line."""
    apart = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    return seconds_of([*apart, "--unshare-all", "--die-with-parent", PYTHON, "-c", "print(42)"])


def cold(kind: str) -> float:
    """Return the seconds from nothing to the answer of a first piece of code."""
    began = time.perf_counter()
    with Warm(kind) as warm:
        warm.answer()
        return time.perf_counter() - began


def cold_command(kind: str) -> float:
    """Return the seconds from nothing to the end of a first command."""
    began = time.perf_counter()
    with Sandbox(require="process", kind=kind) as sandbox:
        assert sandbox.run(["/bin/true"]).exit_code == 0
        return time.perf_counter() - began


class Warm(ExitStack):
    """A sandbox with an interpreter, as in the coding environment's pool."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._python = self.enter_context(
            Interpreter(self.enter_context(Sandbox(require="process", kind=kind)))
        )

    def answer(self) -> None:
        assert self._python.run("print(6 * 7)").stdout == "42\n"


def warm(pool: Pool[Warm]) -> float:
    """Return the seconds from `take` to a first answer, while the pool makes another sandbox."""
    deadline = time.monotonic() + FILL_TIMEOUT_S
    pool.fill()
    while pool.ready < WARM:
        assert time.monotonic() < deadline, "the pool does not fill"
        time.sleep(0.02)
    began = time.perf_counter()
    with pool.take() as taken:
        taken.answer()
        return time.perf_counter() - began


def starts(rounds: int) -> Iterator[Row]:
    """Measure each way once in a round."""
    kinds = [one.kind for one in kinds_of_this_machine() if one.is_there]
    with ExitStack() as stack:
        ways: dict[str, Callable[[], float]] = {"Python": bare_python, "bwrap, Python": bare_bwrap}
        for kind in kinds:
            ways[f"{kind}, cold, a command"] = partial(cold_command, kind)
            ways[f"{kind}, cold, code"] = partial(cold, kind)
        for kind in kinds:
            pool = stack.enter_context(Pool(partial(Warm, kind), WARM))
            ways[f"{kind}, warm, code"] = partial(warm, pool)
        for number in range(rounds):
            for who, measure in ways.items():
                yield {"part": "start", "who": who, "round": number, "seconds": measure()}


# ------------------------------------------------------------------ code over a socket


def coding_python() -> Path:
    """Return a Python with the public package and smolagents, which is installed if missing."""
    python, ready = CODING_PEER / "bin" / "python", CODING_PEER / ".ready"
    wanted = "\n".join(PACKAGES)
    if not (ready.exists() and ready.read_text() == wanted):
        print(f"installing {', '.join(PACKAGES)} into {CODING_PEER}", file=sys.stderr)
        venv.create(CODING_PEER, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        ready.write_text(wanted)
    return python


@dataclass(frozen=True)
class Coding(Contender):
    """A server of the coding environment; the public one has its own Python."""

    def command(self, port: int) -> list[str]:
        python, *words = super().command(port)
        return [str(coding_python()) if self.whose == PUBLIC else python, *words]


def frames_of(piece: str) -> Frames:
    """Return the frames of the load generator."""
    code, check = PIECES[piece]
    step = json.dumps({"type": "step", "data": {"code": code}}, separators=(",", ":"))
    return Frames(f"coding-{piece}", RESET, step.encode(), '"exit_code":0', check)


def servers_of(frames: Frames) -> list[Coding]:
    """Return the servers to measure."""

    def ours(name: str, **variables: str) -> Coding:
        return Coding(name, OURS, frames, file="coding_ours", environment=variables)

    kinds = [one.kind for one in kinds_of_this_machine() if one.is_there]
    return [
        Coding("public, smolagents", PUBLIC, frames, file="coding_public"),
        ours("ours, smolagents", CODING_ENGINE="smolagents"),
        *(
            ours(
                f"ours, {kind}",
                CODING_ENGINE="sandbox",
                CODING_REQUIRE="process",
                CODING_SANDBOX=kind,
                CODING_WARM_SANDBOXES=str(SESSIONS),
            )
            for kind in kinds
        ),
    ]


def codes(rounds: int, seconds: float) -> Iterator[Row]:
    """Measure each server once in a round, freshly started."""
    peer_python()
    server_core, load_core = machine.cores()
    load = Load(compiled(), load_core)
    for piece in PIECES:
        frames = frames_of(piece)
        for number in range(rounds):
            for coding in servers_of(frames):
                with serving(coding, {server_core}) as server:
                    server.wait_until_healthy()
                    result = load.run(
                        server.port,
                        frames,
                        *("--sessions", SESSIONS, "--warmup", WARM_UP_S, "--duration", seconds),
                    )
                yield {
                    "part": "code",
                    "who": coding.name,
                    "piece": piece,
                    "round": number,
                    **result,
                }


# ------------------------------------------------------------------ output


def milliseconds(found: list[float]) -> str:
    return (
        f"{statistics.median(found) * 1e3:.1f} ({min(found) * 1e3:.1f} to {max(found) * 1e3:.1f})"
    )


def start_table(rows: list[Row]) -> str:
    """Return the medians over the rounds, and the range, as a table."""
    lines = ["| start to first answer | ms |", "| --- | ---: |"]
    for who in dict.fromkeys(row["who"] for row in rows):
        found = [row["seconds"] for row in rows if row["who"] == who]
        lines.append(f"| {who} | {milliseconds(found)} |")
    return "\n".join(lines)


def code_table(rows: list[Row]) -> str:
    """Return the medians over the rounds as a table; ratios are taken within a round."""
    heads = [f"{piece}: /s | of public | p50 ms | p99 ms" for piece in PIECES]
    lines = [f"| code | {' | '.join(heads)} |", f"| --- |{' ---: |' * 4 * len(PIECES)}"]
    names = list(dict.fromkeys(row["who"] for row in rows))
    for who in names:
        cells = []
        for piece in PIECES:
            of = {(row["who"], row["round"]): row for row in rows if row["piece"] == piece}
            mine = {number: row for (name, number), row in of.items() if name == who}
            rates = [row["steps_per_s"] for row in mine.values()]
            ratios = [
                row["steps_per_s"] / of[names[0], number]["steps_per_s"]
                for number, row in mine.items()
            ]
            cells += [f"{statistics.median(rates):,.0f}", f"{statistics.median(ratios):.1f}x"]
            for point in ("p50", "p99"):
                took = [row["latency_us"][point] for row in mine.values()]
                cells.append(f"{statistics.median(took) / 1e3:.2f}")
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return "\n".join(lines)


def told(row: Row) -> str:
    """Return a row as a progress line."""
    if row["part"] == "start":
        return f"{row['who']}: {row['seconds'] * 1e3:.1f} ms"
    return f"{row['who']}, {row['piece']}: {row['steps_per_s']:,.0f}/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=["start", "code"], default=["start", "code"])
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="the measured window")
    parser.add_argument("--write", action="store_true", help="write every round as JSON")
    given = parser.parse_args()
    machine.raise_open_files()
    rows: list[Row] = []
    parts = {
        "start": (partial(starts, given.rounds), start_table),
        "code": (partial(codes, given.rounds, given.seconds), code_table),
    }
    for part in given.only:
        measure, table = parts[part]
        for row in measure():
            rows.append({**row, "load": os.getloadavg()[0]})
            print(f"{told(row)} (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
        print(table([row for row in rows if row["part"] == part]), end="\n\n")
    if given.write:
        content = {"date": time.strftime("%Y-%m-%d"), "machine": machine.describe(), "rows": rows}
        path = RESULTS / "sandbox.json"
        path.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
