"""The cost of a gateway: the same server, directly and through `openenv gateway`, in one run.

    python benchmarks/gateway.py [--rounds 3] [--seconds 2] [--write]

The program measures steps of the echo environment by WebSocket (one client; a `VectorEnv` of 64),
openings of sessions, and requests by HTTP. CPU time is the gateway's own, from /proc. All processes
share the machine's cores, so the gateway takes time from the server and the client: the rates show
the machine's loss, and the CPU time shows the gateway's needs. Progress goes to stderr, the table
to stdout, and with `--write` every round into `results/gateway.json`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine
from benchmarks.report import RESULTS

from echo_env import EchoAction, EchoEnv
from openenv import VectorEnv
from openenv.providers import ProcessProvider

TICKS = os.sysconf("SC_CLK_TCK")
ACTION = EchoAction(message="hello")


@contextmanager
def gateway(url: str) -> Iterator[tuple[str, int]]:
    """Run a gateway in front of one server; yield its address and process id."""
    command = [sys.executable, "-m", "openenv.cli", "gateway", url, "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()


def cpu_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def one_client(url: str) -> Iterator[int]:
    with EchoEnv(base_url=url).sync() as env:
        env.reset()
        while True:
            for _ in range(50):
                env.step(ACTION)
            yield 50


def vector(url: str) -> Iterator[int]:
    with VectorEnv(url, num_envs=64, client=EchoEnv, connections=2) as envs:
        envs.reset()
        actions = [ACTION] * 64
        while True:
            envs.step(actions)
            yield 64


def openings(url: str) -> Iterator[int]:
    while True:
        with EchoEnv(base_url=url).sync() as env:
            env.reset()
        yield 1


def by_http(url: str) -> Iterator[int]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/reset", b"{}", headers)
    with connection.getresponse() as response:
        response.read()
        headers["OpenEnv-Session-Id"] = response.headers["OpenEnv-Session-Id"]
    body = json.dumps({"action": {"message": "hello"}}).encode()
    while True:
        connection.request("POST", "/step", body, headers)
        with connection.getresponse() as response:
            assert response.status == 200
            response.read()
        yield 1


KINDS: dict[str, tuple[str, Callable[[str], Iterator[int]]]] = {
    "one": ("steps, one client", one_client),
    "vector": ("steps, VectorEnv of 64", vector),
    "openings": ("sessions opened and closed", openings),
    "http": ("steps by HTTP", by_http),
}


def measured(kind: str, url: str, pid: int | None, seconds: float) -> dict[str, Any]:
    work = KINDS[kind][1](url)
    for _ in range(10):
        next(work)
    cpu, began, done = cpu_seconds(pid), time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        done += next(work)
    wall = time.perf_counter() - began
    work.close()  # type: ignore[attr-defined]
    used = (cpu_seconds(pid) - cpu) / done * 1e6
    return {"kind": kind, "per_s": done / wall, "gateway_cpu_us": None if pid is None else used}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| | straight | through a gateway | | the gateway's CPU |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind, (words, _) in KINDS.items():
        own = [row for row in rows if row["kind"] == kind]
        straight = statistics.median(r["per_s"] for r in own if r["way"] == "straight")
        through = [row for row in own if row["way"] == "gateway"]
        rate = statistics.median(row["per_s"] for row in through)
        cpu = statistics.median(row["gateway_cpu_us"] for row in through)
        rates = f"{straight:,.0f}/s | {rate:,.0f}/s | {rate / straight:.2f}x"
        lines.append(f"| {words} | {rates} | {cpu:,.0f} µs |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=2.0, help="the measured window")
    parser.add_argument("--write", action="store_true", help="write every round as JSON")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    provider = ProcessProvider("echo_env", api_key=None, env_vars={"MAX_CONCURRENT_ENVS": "256"})
    try:
        with provider.launch() as server:
            server.wait_for_ready()
            with gateway(server.url) as (url, pid):
                for number in range(given.rounds):
                    for kind in KINDS:
                        for way, at, of in (("straight", server.url, None), ("gateway", url, pid)):
                            row = measured(kind, at, of, given.seconds)
                            rows.append({**row, "way": way, "round": number})
                            print(f"{kind}, {way}: {row['per_s']:,.0f}/s", file=sys.stderr)
    finally:
        provider.close()
    print(table(rows))
    if given.write:
        content = {"date": time.strftime("%Y-%m-%d"), "machine": machine.describe(), "rows": rows}
        path = RESULTS / "gateway.json"
        path.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
