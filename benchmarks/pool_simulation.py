"""A simulation of the control loop of `EnvPool` under bursts and failures.

    python benchmarks/pool_simulation.py [--scale N] [--seed N] [--write]

The decisions are those of the package (`openenv.pool.control`, the same objects that a pool uses).
Servers, sessions and time are simulated, so that a hundred thousand sessions take a minute. With
`--write` the plot goes to docs/pictures/pool-simulation.svg and the figures to
benchmarks/results/pool_simulation.json.

The scenario: sessions come and go at a steady rate; a trainer asks for a large batch at once; a
zone with a fifth of all servers fails; the registry fails for half a minute, so that no server can
start; and servers die at random all the time. A start takes longer if more starts run at once than
the cluster can bear.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from openenv.pool.control import Load, Scaler, Starts

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "pool-simulation.svg"
RESULT = ROOT / "benchmarks" / "results" / "pool_simulation.json"

TICK_S = 0.25  # the period of a pool's control loop
END_S = 900.0
COLD_START_S = 6.0  # median, for a container on a machine that has the image
BEARS = 48  # concurrent starts that do not slow the cluster down
SESSION_S = 60.0  # mean duration of a session
MTBF_S = 4 * 3600.0  # mean time between failures of one server


@dataclass(frozen=True)
class Script:
    """The scenario of a simulation.

    Attributes:
        sessions: Mean number of steady sessions.
        burst: Sessions that a trainer asks for at once.
        each: Sessions per server.
        highest: Maximum number of servers.
    """

    sessions: int
    burst: int
    each: int
    highest: int
    burst_at: float = 200.0
    zone_at: float = 400.0
    registry_at: float = 550.0
    registry_s: float = 30.0
    second_burst_at: float = 560.0


@dataclass
class Server:
    number: int
    sessions: int = 0
    zone: int = 0
    is_resting: bool = False


@dataclass
class World:
    """The state of the simulation: servers, sessions and future events."""

    script: Script
    rng: random.Random
    servers: dict[int, Server] = field(default_factory=dict)
    starting: int = 0
    waiting: list[tuple[float, int]] = field(default_factory=list)  # (time of request, number)
    events: list[tuple[float, int, str, Any]] = field(default_factory=list)
    order: Any = field(default_factory=count)
    waits: list[tuple[float, int]] = field(default_factory=list)  # (seconds, number of sessions)
    lost: int = 0
    failed_starts: int = 0
    started: int = 0
    registry_down: bool = False

    def at(self, when: float, what: str, which: Any = None) -> None:
        heapq.heappush(self.events, (when, next(self.order), what, which))

    @property
    def leased(self) -> int:
        return sum(one.sessions for one in self.servers.values())

    @property
    def asked(self) -> int:
        return sum(n for _, n in self.waiting)

    def ask(self, now: float, n: int) -> None:
        self.waiting.append((now, n))

    def serve(self, now: float) -> None:
        """Give places to the waiting sessions, in order, spread over the servers."""
        if not self.waiting:
            return
        free = sorted(
            (
                one
                for one in self.servers.values()
                if one.sessions < self.script.each and not one.is_resting
            ),
            key=lambda one: one.sessions,
        )
        while self.waiting and free:
            since, n = self.waiting[0]
            server = free[0]
            took = min(n, self.script.each - server.sessions, max(1, n // len(free)))
            server.sessions += took
            if server.sessions >= self.script.each:
                free.pop(0)
            else:
                free.append(free.pop(0))
            self.waits.append((now - since, took))
            for _ in range(took):
                self.at(now + self.rng.expovariate(1 / SESSION_S), "left", server.number)
            if took == n:
                self.waiting.pop(0)
            else:
                self.waiting[0] = (since, n - took)

    def begin(self, now: float) -> None:
        self.starting += 1
        slowed = max(1.0, self.starting / BEARS) ** 2
        took = COLD_START_S * slowed * math.exp(self.rng.gauss(0.0, 0.25))
        self.at(now + took, "ready", took)

    def kill(self, number: int, now: float) -> None:
        server = self.servers.pop(number, None)
        if server is not None:
            self.lost += server.sessions
            if server.sessions:  # each session starts again
                self.ask(now, server.sessions)


def simulate(script: Script, seed: int) -> tuple[World, list[dict[str, float]]]:
    """Run the scenario; return the final state, and the history with one entry per second."""
    world = World(script, random.Random(seed))
    scaler = Scaler(1, script.highest, spare=script.each, sessions_per_server=script.each)
    starts = Starts()
    rate, history = script.sessions / SESSION_S, []
    world.at(script.burst_at, "burst", script.burst)
    world.at(script.second_burst_at, "burst", script.burst // 2)
    world.at(script.zone_at, "zone")
    world.at(script.registry_at, "registry", True)
    world.at(script.registry_at + script.registry_s, "registry", False)
    owed, now, numbers = 0.0, 0.0, count()
    while now < END_S:
        while world.events and world.events[0][0] <= now:
            when, _, what, which = heapq.heappop(world.events)
            if what == "left":
                if which in world.servers:
                    world.servers[which].sessions -= 1
            elif what == "burst":
                world.ask(when, which)
            elif what == "zone":
                for number in [n for n, one in world.servers.items() if one.zone == 0]:
                    world.kill(number, when)
            elif what == "registry":
                world.registry_down = which
            elif what == "ready":
                world.starting -= 1
                if world.registry_down:
                    world.failed_starts += 1
                    starts.failed(when)
                else:
                    number = next(numbers)
                    world.servers[number] = Server(number, zone=number % 5)
                    world.started += 1
                    starts.succeeded(which, when)
                    world.at(when + world.rng.expovariate(1 / MTBF_S), "died", number)
            elif what == "died":
                world.kill(which, when)
        owed += rate * TICK_S * world.rng.uniform(0.5, 1.5)
        if owed >= 1:
            world.ask(now, int(owed))
            owed -= int(owed)
        world.serve(now)
        for number in [n for n, s in world.servers.items() if s.is_resting and not s.sessions]:
            del world.servers[number]
        own = [one for one in world.servers.values() if not one.is_resting]
        load = Load(
            leased=sum(one.sessions for one in own),
            waiting=world.asked,
            servers=len(own),
            slots=len(own) * script.each,
            starting=world.starting,
        )
        wanted = scaler.wanted(load, now)
        there = load.servers + load.starting
        resting = [one for one in world.servers.values() if one.is_resting]
        for server in sorted(resting, key=busy, reverse=True)[: max(wanted - there, 0)]:
            server.is_resting = False
            there += 1
        for _ in range(min(wanted - there, starts.allowed(world.starting, now))):
            world.begin(now)
        for server in sorted(own, key=busy)[: max(there - wanted, 0)]:
            server.is_resting = True
        if abs(now - round(now)) < TICK_S / 2:
            oldest = now - world.waiting[0][0] if world.waiting else 0.0
            history.append(
                {
                    "s": now,
                    "leased": world.leased,
                    "waiting": load.waiting,
                    "slots": len(world.servers) * script.each,
                    "starting": load.starting,
                    "waited_s": oldest,
                }
            )
        now += TICK_S
    return world, history


def busy(server: Server) -> int:
    return server.sessions


def quantile(waits: list[tuple[float, int]], share: float) -> float:
    """Return a quantile of the waiting times, in seconds."""
    total, seen = sum(n for _, n in waits), 0
    for wait, n in sorted(waits):
        seen += n
        if seen >= share * total:
            return wait
    return 0.0


def plot(history: list[dict[str, float]], script: Script, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "openenv"
    seconds = [one["s"] for one in history]
    figure, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, height_ratios=[3, 1, 1])
    axes[0].fill_between(seconds, [one["slots"] for one in history], color="0.9", label="slots")
    wanted = [one["leased"] + one["waiting"] for one in history]
    axes[0].plot(seconds, wanted, color="C1", lw=1, label="asked for")
    axes[0].plot(seconds, [one["leased"] for one in history], color="C0", lw=1.5, label="leased")
    axes[0].set_ylabel("sessions")
    axes[0].legend(loc="upper right", frameon=False)
    axes[1].plot(seconds, [one["starting"] for one in history], color="C2", lw=1)
    axes[1].set_ylabel("servers that start")
    axes[2].plot(seconds, [one["waited_s"] for one in history], color="C3", lw=1)
    axes[2].set_ylabel("longest wait, s")
    axes[2].set_xlabel("seconds")
    marks = [
        (script.burst_at, "a trainer's batch"),
        (script.zone_at, "a zone fails"),
        (script.registry_at, "registry down"),
        (script.registry_at + script.registry_s, "up again"),
    ]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
        for when, _ in marks:
            axis.axvline(when, color="0.6", lw=0.6, ls=":")
    top = axes[0].get_ylim()[1]
    for when, words in marks:
        axes[0].text(when - 12, top * 0.99, words, fontsize=7, va="top", rotation=90)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=int, default=20_000, help="steady sessions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the plot and the figures")
    options = parser.parse_args()
    scale = options.scale
    script = Script(scale, 2 * scale, each=64, highest=math.ceil(5 * scale / 64))
    world, history = simulate(script, options.seed)
    recovered = {
        name: next(
            (one["s"] - when for one in history if one["s"] > when + 1 and not one["waiting"]),
            None,
        )
        for name, when in (
            ("batch", script.burst_at),
            ("zone", script.zone_at),
            ("registry_up", script.registry_at + script.registry_s),
        )
    }
    steady = [one for one in history if 100 < one["s"] < script.burst_at]
    told = {
        "script": asdict(script),
        "sessions_begun": sum(n for _, n in world.waits),
        "sessions_lost": world.lost,
        "servers_started": world.started,
        "failed_starts": world.failed_starts,
        "wait_s": {str(q): round(quantile(world.waits, q), 2) for q in (0.5, 0.9, 0.99, 1.0)},
        "nobody_waits_after_s": recovered,
        "used_when_steady": round(
            sum(one["leased"] for one in steady) / sum(one["slots"] for one in steady), 3
        ),
    }
    print(json.dumps(told, indent=2))
    if options.write:
        plot(history, script, PICTURE)
        RESULT.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
