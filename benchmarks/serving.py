"""Servers that are started on a free port, measured through /proc, and ended by process id."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.contenders import BARE, Contender

__all__ = ["LOGS", "Memory", "Server", "free_port", "serving"]

LOGS = Path(__file__).resolve().parent / "build" / "logs"
TICKS = os.sysconf("SC_CLK_TCK")
PARENT, USER_TIME, SYSTEM_TIME = 1, 11, 12  # fields of /proc/PID/stat, after the name

STARTS_WITHIN_S = 60
STOPS_WITHIN_S = 15
QUIET_WITHIN_S = 60
HEALTH_EVERY_S = 0.002
# Below the ports that the system gives to clients.
PORTS = range(20000, 32000)


class Memory(NamedTuple):
    """The memory of a process tree, in bytes; `pss` divides shared pages between their users."""

    rss: int
    pss: int


class Server:
    """A running server."""

    def __init__(self, contender: Contender, process: subprocess.Popen[bytes], port: int) -> None:
        self.contender = contender
        self.port = port
        self._process = process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pids(self) -> list[int]:
        """Return the process ids of the server and its children."""
        children = _children()
        found = [self._process.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def cpu_options(self) -> list[str]:
        return [word for pid in self.pids() for word in ("--cpu-of", str(pid))]

    def cpu_seconds(self) -> float:
        fields = [_stat(pid) for pid in self.pids()]
        return sum(int(f[USER_TIME]) + int(f[SYSTEM_TIME]) for f in fields) / TICKS

    def memory(self) -> Memory:
        rss = pss = 0
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, rest = line.partition(":")
                rss += int(rest.split()[0]) if name == "Rss" else 0
                pss += int(rest.split()[0]) if name == "Pss" else 0
        return Memory(rss * 1024, pss * 1024)

    def settle(self) -> None:
        """Wait until the server is idle, because it may still be closing ended sessions."""
        until = time.monotonic() + QUIET_WITHIN_S
        before = self.cpu_seconds()
        while time.monotonic() < until:
            time.sleep(0.15)
            after = self.cpu_seconds()
            if after - before <= 1 / TICKS:
                return
            before = after

    def wait_until_healthy(self) -> None:
        """Wait for the first 200 of /health, or for the port of a bare server."""
        until = time.monotonic() + STARTS_WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.contender.name} did not start: {log_of(self.contender)}")
            time.sleep(HEALTH_EVERY_S)

    def _answers(self) -> bool:
        try:
            if self.contender.whose == BARE:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False

    def stop(self) -> None:
        """End the server's process group, which was made for this server."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
            try:
                self._process.wait(STOPS_WITHIN_S)
                return
            except subprocess.TimeoutExpired:
                continue


def _stat(pid: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain any character."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _children() -> dict[int, list[int]]:
    """Return the processes of this machine, by parent."""
    found: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # the process has ended meanwhile
            found.setdefault(int(_stat(pid)[PARENT]), []).append(int(pid))
    return found


def log_of(contender: Contender) -> Path:
    return LOGS / f"{contender.name.replace(' ', '-')}.log"


@contextmanager
def serving(contender: Contender, cores: set[int]) -> Iterator[Server]:
    """Serve from `cores` for a block; the server is not yet healthy when the block starts."""
    LOGS.mkdir(parents=True, exist_ok=True)
    port = free_port()
    pinned = ["taskset", "-c", ",".join(map(str, sorted(cores)))]
    with log_of(contender).open("wb") as log:
        process = subprocess.Popen(
            [*pinned, *contender.command(port)],
            env=contender.variables(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C goes only to this process, which then ends the server
        )
        server = Server(contender, process, port)
        try:
            yield server
        finally:
            server.stop()


def free_port() -> int:
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no free port")
