"""The cost of the capture proxy: the same model server, called directly and through the proxy.

    python benchmarks/capture.py [--rounds 3] [--seconds 2] [--write]

The server has no model (`servers/model.py`), so all the time is transport: answers of 256 tokens to
prompts of 2,000, whole and streamed, one call at a time and 8; and the first token of a stream of
200 tokens a second. A session is a conversation of 20 calls, as long as an agent's. The public
package's proxy is also measured if `.peer` exists. CPU time is the proxy's own, from /proc; all
processes share the machine's cores. Progress goes to stderr, the table to stdout, and with
`--write` every round into `results/capture.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine
from benchmarks.report import RESULTS

ROOT = Path(__file__).resolve().parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
SERVERS = ROOT / "benchmarks" / "servers"
PEER = ROOT / ".peer" / "bin" / "python"
SESSIONS = 400
TURNS = 20
KINDS = {
    "whole": ("whole answers, one at a time", 1, False),
    "whole 8": ("whole answers, 8 at a time", 8, False),
    "stream": ("streams of 256 tokens, one at a time", 1, True),
    "stream 8": ("streams of 256 tokens, 8 at a time", 8, True),
}


class Way:
    """A way to the model: its port, its keys, and the process whose CPU time counts."""

    def __init__(self, port: int, keys: list[str], pid: int | None) -> None:
        self.port = port
        self.pid = pid
        self.keys = itertools.cycle(keys)

    def cpu_seconds(self) -> float:
        if self.pid is None:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def started(command: list[str], lines: int, **env: str) -> Iterator[tuple[list[str], int]]:
    """Run a program; yield its first lines of output, and its process id."""
    environment = {**os.environ, **env}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield [process.stdout.readline().strip() for _ in range(lines)], process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def ways(gap_ms: float = 0) -> Iterator[dict[str, Way]]:
    """Yield the ways to one server: directly, through ours, and through the public proxy."""
    with contextlib.ExitStack() as stack:
        program = [sys.executable, str(SERVERS / "model.py")]
        (port,), _ = stack.enter_context(started(program, 1, GAP_MS=str(gap_ms)))
        found = {"straight": Way(int(port), ["none"], None)}
        contenders = {"ours": sys.executable, **({"0.10": str(PEER)} if PEER.exists() else {})}
        for name, python in contenders.items():
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                own = free.getsockname()[1]
            program = [python, str(SERVERS / "captured.py"), f"http://127.0.0.1:{port}/v1"]
            keys, pid = stack.enter_context(started([*program, str(own), str(SESSIONS)], SESSIONS))
            found[name] = Way(own, keys, pid)
        yield found


def conversation(way: Way, stream: bool) -> Iterator[float]:
    """Have a growing conversation; yield the seconds until each answer, or its first part."""
    connection = http.client.HTTPConnection("127.0.0.1", way.port)
    messages: list[dict[str, str]] = [{"role": "system", "content": "be brief " * 100}]
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {next(way.keys)}",
    }
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"question {turn}"})
        body = json.dumps({"model": "m", "messages": messages, "max_tokens": 256, "stream": stream})
        began = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", body.encode(), headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        first = response.read1(2**16) if stream else b""
        waited = time.perf_counter() - began
        rest = response.read()
        assert b"word" in first + rest
        messages.append({"role": "assistant", "content": "word " * 256})
        yield waited
    connection.close()


def measured(way: Way, at_once: int, stream: bool, seconds: float) -> dict[str, Any]:
    """Return the answers per second, and the proxy's CPU time per answer."""
    done = [0] * at_once
    for _ in itertools.islice(conversation(way, stream), 3):
        pass
    cpu, began = way.cpu_seconds(), time.perf_counter()

    def ask(number: int) -> None:
        while time.perf_counter() < began + seconds:
            for _ in conversation(way, stream):
                done[number] += 1
                if time.perf_counter() > began + seconds:
                    return

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - began
    used = (way.cpu_seconds() - cpu) / sum(done) * 1e6
    return {"per_s": sum(done) / wall, "cpu_us": None if way.pid is None else used}


def first_token(way: Way) -> float:
    """Return the milliseconds until the first part of a slow stream; the median of 5 calls."""
    waits = itertools.islice(conversation(way, True), 5)
    return statistics.median(waits) * 1000


def table(rows: list[dict[str, Any]], waits: dict[str, list[float]]) -> str:
    names = list(waits)
    head = " | ".join(names)
    lines = [f"| | {head} |", "| --- |" + " ---: |" * len(names)]
    for kind, (words, *_) in KINDS.items():
        cells = []
        for name in names:
            own = [row for row in rows if (row["kind"], row["way"]) == (kind, name)]
            ratio = statistics.median(row["ratio"] for row in own)
            rate = statistics.median(row["per_s"] for row in own)
            cell = f"{rate:,.0f}/s"
            if name != "straight":
                cpu = statistics.median(row["cpu_us"] for row in own)
                cell += f" ({ratio:.2f}x), CPU {cpu / 1000:,.1f} ms"
            cells.append(cell)
        lines.append(f"| {words} | {' | '.join(cells)} |")
    first = [f"{statistics.median(waits[name]):,.1f} ms" for name in names]
    lines.append(f"| first token of a stream of 200 a second | {' | '.join(first)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=2.0, help="the measured window")
    parser.add_argument("--write", action="store_true", help="write every round as JSON")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    waits: dict[str, list[float]] = {}
    with ways() as found:
        for number, (kind, (_, at_once, stream)) in itertools.product(
            range(given.rounds), KINDS.items()
        ):
            straight = 0.0
            for name, way in found.items():
                row = measured(way, at_once, stream, given.seconds)
                straight = straight or row["per_s"]
                ratio = row["per_s"] / straight
                rows.append({**row, "ratio": ratio, "kind": kind, "way": name, "round": number})
                print(f"{kind}, {name}: {row['per_s']:,.0f}/s", file=sys.stderr)
    with ways(gap_ms=5) as found:
        for _, (name, way) in itertools.product(range(given.rounds), found.items()):
            waits.setdefault(name, []).append(first_token(way))
            print(f"first token, {name}: {waits[name][-1]:.1f} ms", file=sys.stderr)
    print(table(rows, waits))
    if given.write:
        told = {"date": time.strftime("%Y-%m-%d"), "machine": machine.describe(), "rows": rows}
        path = RESULTS / "capture.json"
        content = json.dumps({**told, "first_token_ms": waits}, indent=1)
        path.write_text(f"{content}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
