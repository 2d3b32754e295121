"""The parts: each yields rows, one for every contender in every round.

A round runs the contenders one after the other, and rounds follow each other. So other load on the
machine affects all contenders equally, and figures are compared within a round.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from benchmarks.contenders import (
    BARE,
    CLIENTS,
    COLDS,
    ECHOES,
    FRAMES,
    JSON,
    OURS,
    SESSIONS,
    TOOLS,
    VECTORS,
    Client,
    Contender,
    Tools,
    clean_environment,
)
from benchmarks.load import Load
from benchmarks.serving import Server, serving

__all__ = ["FULL", "PARTS", "QUICK", "Bench", "Plan", "Row"]

Row = dict[str, Any]
AnyContender = TypeVar("AnyContender", Contender, Client, Tools)

WARM_UP_STEPS = 500
SCREEN_SESSIONS = 16
SCALE = 16384
MEMORY_STEPS = 5
VECTOR_SESSIONS = 256
COLD_SESSIONS, CHURN_SESSIONS = 256, 64
CLIENT_STEPS = 3000
MCP_CONNECTIONS = (1, 16)
MCP_SESSIONS = 512


@dataclass(frozen=True)
class Plan:
    """The amount of measurement."""

    rounds: int
    window_s: float
    warm_up_s: float
    sessions: tuple[int, ...]
    open_sessions: int
    memory_sessions: tuple[int, ...]
    starts: int
    is_quick: bool = False


FULL = Plan(
    rounds=3,
    window_s=3,
    warm_up_s=0.7,
    sessions=SESSIONS,
    open_sessions=1024,
    memory_sessions=(1024, 4096),
    starts=7,
)
QUICK = Plan(
    rounds=1,
    window_s=1,
    warm_up_s=0.3,
    sessions=(1, 256),
    open_sessions=256,
    memory_sessions=(256,),
    starts=1,
    is_quick=True,
)


@dataclass(frozen=True)
class Bench:
    """The tools and settings of a part."""

    plan: Plan
    load: Load
    server_cores: set[int]
    all_cores: set[int]
    only: frozenset[str]  # names of contenders; empty for all
    tell: Callable[[str, int, int], None]  # called with what is measured, its number, and the total

    def chosen(self, contenders: Sequence[AnyContender]) -> list[AnyContender]:
        if self.only:
            return [c for c in contenders if c.name in self.only]
        return [c for c in contenders if c.in_quick or not self.plan.is_quick]

    def turns(
        self, contenders: Sequence[AnyContender], rounds: int, points: Sequence[int] = (0,)
    ) -> Iterator[tuple[AnyContender, Row]]:
        """Yield the measurements in order: every contender once in each round, at every point."""
        turns = [
            (contender, {"contender": contender.name, "sessions": point, "round": number})
            for point in points
            for number in range(rounds)
            for contender in contenders
            if not point or not (own := getattr(contender, "sessions", ())) or point in own
        ]
        for number, (contender, row) in enumerate(turns):
            at = f", {row['sessions']} sessions" if row["sessions"] else ""
            self.tell(f"{contender.name}{at}", number, len(turns))
            yield contender, row

    @contextmanager
    def serve(self, contender: Contender) -> Iterator[Server]:
        """Serve a contender for a block; yield the server, healthy and warm."""
        with self.started(contender) as server:
            server.wait_until_healthy()
            self.load.run(server.port, contender.frames, "--steps", WARM_UP_STEPS)
            yield server

    @contextmanager
    def started(self, contender: Contender) -> Iterator[Server]:
        cores = self.server_cores if contender.pinned else self.all_cores - {self.load.core}
        with serving(contender, cores) as server:
            yield server

    @contextmanager
    def serve_all(self, contenders: Sequence[Contender]) -> Iterator[dict[str, Server]]:
        with ExitStack() as stack:
            yield {c.name: stack.enter_context(self.serve(c)) for c in contenders}

    def step(self, server: Server, sessions: int, *options: object) -> Row:
        return self.load.run(
            server.port,
            server.contender.frames,
            *("--sessions", sessions, "--warmup", self.plan.warm_up_s),
            *("--duration", self.plan.window_s, *server.cpu_options(), *options),
        )

    def play(self, client: Client, *arguments: object) -> Row:
        """Run a client program on the load generator's core."""
        command = ["taskset", "-c", str(self.load.core), *client.command(*map(str, arguments))]
        done = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(client.whose),
        )
        row: Row = json.loads(done.stdout)
        return row


def settle(servers: dict[str, Server]) -> None:
    for server in servers.values():
        server.settle()


def _stepping(bench: Bench, points: Sequence[int], rounds: int, *options: object) -> Iterator[Row]:
    contenders = bench.chosen(ECHOES)
    with bench.serve_all(contenders) as servers:
        for contender, row in bench.turns(contenders, rounds, points):
            settle(servers)
            yield row | bench.step(servers[contender.name], row["sessions"], *options)


def steps(bench: Bench) -> Iterator[Row]:
    yield from _stepping(bench, bench.plan.sessions, bench.plan.rounds, "--spin")


def round_trip(bench: Bench) -> Iterator[Row]:
    # Without --spin: clients sleep while they wait, and waking them is part of the round trip.
    yield from _stepping(bench, (1,), bench.plan.rounds * 3)


def opening(bench: Bench) -> Iterator[Row]:
    """Connect, shake hands and reset, many sessions at a time."""
    contenders = [c for c in bench.chosen(ECHOES) if c.variant == "sync"]
    with bench.serve_all(contenders) as servers:
        for contender, row in bench.turns(
            contenders, bench.plan.rounds, (bench.plan.open_sessions,)
        ):
            settle(servers)
            server = servers[contender.name]
            options = ("--sessions", row["sessions"], "--steps", 1, *server.cpu_options())
            yield row | bench.load.run(server.port, contender.frames, *options)


def memory(bench: Bench) -> Iterator[Row]:
    """Measure the memory of an open session in a fresh server."""
    contenders = [c for c in bench.chosen(ECHOES) if c.variant == "sync"]
    rounds = min(2, bench.plan.rounds)
    for contender, row in bench.turns(contenders, rounds, bench.plan.memory_sessions):
        yield row | _memory(bench, contender, row["sessions"])


def scale(bench: Bench) -> Iterator[Row]:
    """Open more sessions than anybody needs, on one server of ours."""
    contenders = [c for c in bench.chosen(ECHOES) if c.whose == OURS and not c.sessions]
    for contender, row in bench.turns(contenders, 1, (SCALE,)):
        yield row | _memory(bench, contender, row["sessions"], "--timeout", 300)


def _memory(bench: Bench, contender: Contender, sessions: int, *options: object) -> Row:
    with bench.serve(contender) as server:
        server.settle()
        before = server.memory()
        options = ("--sessions", sessions, "--steps", MEMORY_STEPS, *options)
        with bench.load.held(
            server.port, contender.frames, *options, *server.cpu_options()
        ) as result:
            server.settle()
            after = server.memory()
        return {
            **result,
            "rss_before": before.rss,
            "rss_after": after.rss,
            "rss_a_session": (after.rss - before.rss) / sessions,
            "pss_a_session": (after.pss - before.pss) / sessions,
        }


def frames(bench: Bench) -> Iterator[Row]:
    """Measure observations of 100,800 bytes."""
    contenders = bench.chosen(FRAMES)
    with bench.serve_all(contenders) as servers:
        for contender, row in bench.turns(contenders, bench.plan.rounds, (SCREEN_SESSIONS,)):
            settle(servers)
            yield row | bench.step(servers[contender.name], row["sessions"], "--spin")


def start(bench: Bench) -> Iterator[Row]:
    """Measure the time from the start of the process to the first 200 of /health."""
    echoes = [c for c in bench.chosen(ECHOES) if c.variant == "sync" and not c.options]
    contenders = [c for c in echoes if c.frames is JSON and c.whose != BARE]
    for contender, row in bench.turns(contenders, bench.plan.starts):
        began = time.perf_counter()
        with bench.started(contender) as server:
            server.wait_until_healthy()
            yield row | {"seconds": time.perf_counter() - began}


def client(bench: Bench) -> Iterator[Row]:
    """Measure the CPU time of one session in the client's process, against a bare server."""
    bare = next(c for c in ECHOES if c.whose == BARE)
    with bench.serve(bare) as server:
        for contender, row in bench.turns(bench.chosen(CLIENTS), bench.plan.rounds):
            yield row | bench.play(contender, server.url, CLIENT_STEPS)


def vector(bench: Bench) -> Iterator[Row]:
    """Step many sessions of one client process, each side with its own server."""
    server_of = {client.name: name for client, name in VECTORS}
    clients = bench.chosen([client for client, _ in VECTORS])
    echoes = [c for c in ECHOES if c.name in {server_of[client.name] for client in clients}]
    with bench.serve_all(echoes) as servers:
        for contender, row in bench.turns(clients, bench.plan.rounds, (VECTOR_SESSIONS,)):
            settle(servers)
            url = servers[server_of[contender.name]].url
            yield row | bench.play(contender, url, VECTOR_SESSIONS, bench.plan.window_s)


def cold(bench: Bench) -> Iterator[Row]:
    """Open all sessions at once on a fresh server, with each variant of the environment."""
    yield from _from_connect_to_close(bench, "cold", COLD_SESSIONS)


def churn(bench: Bench) -> Iterator[Row]:
    """Play short episodes, each in a new session."""
    yield from _from_connect_to_close(bench, "churn", CHURN_SESSIONS)


def kept(bench: Bench) -> Iterator[Row]:
    """Play the same short episodes in kept sessions."""
    yield from _from_connect_to_close(bench, "kept", CHURN_SESSIONS)


def _from_connect_to_close(bench: Bench, mode: str, sessions: int) -> Iterator[Row]:
    """Play against a fresh server, and measure the CPU time of both sides."""
    echoes = {(c.whose, c.variant): c for c in ECHOES if c.frames is JSON and not c.options}
    for contender, row in bench.turns(bench.chosen(COLDS), bench.plan.rounds, (sessions,)):
        with bench.started(echoes[contender.whose, contender.mode]) as server:
            server.wait_until_healthy()
            before = server.cpu_seconds()
            found = bench.play(replace(contender, mode=mode), server.url, sessions, 0)
            server.settle()
            server_cpu_s = server.cpu_seconds() - before
        yield row | found | {"server_cpu_s": server_cpu_s}


def mcp(bench: Bench) -> Iterator[Row]:
    """Call `tools/list` and `tools/call` at `/mcp`; each connection waits for its answer."""
    chosen = bench.chosen(TOOLS)
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for tools in chosen:
            if tools.server.name not in servers:
                server = stack.enter_context(bench.started(tools.server))
                servers[tools.server.name] = server
                server.wait_until_healthy()
        for method in ("list", "call"):
            for tools, row in bench.turns(chosen, bench.plan.rounds, MCP_CONNECTIONS):
                server = servers[tools.server.name]
                server.settle()
                options = ("--connections", row["sessions"], "--duration", bench.plan.window_s)
                cpu = ("--cpu-of", *server.pids())
                command = tools.command(server.port, method, *options, *cpu)
                yield {
                    **row,
                    "contender": f"{tools.name}, {method}",
                    **_printed(bench, command),
                }


def mcp_memory(bench: Bench) -> Iterator[Row]:
    """Measure the memory of an open session of `/mcp` in a fresh server."""
    chosen = [tools for tools in bench.chosen(TOOLS) if tools.dialect != "modern"]
    rounds = min(2, bench.plan.rounds)
    for tools, row in bench.turns(chosen, rounds, (MCP_SESSIONS,)):
        with bench.started(tools.server) as server:
            server.wait_until_healthy()
            _printed(bench, tools.command(server.port, "call", "--duration", 0.5))
            server.settle()
            before = server.memory()
            held = tools.command(server.port, "open", "--connections", row["sessions"])
            with _holding(bench, held):
                server.settle()
                after = server.memory()
            yield {
                **row,
                "rss_before": before.rss,
                "rss_after": after.rss,
                "rss_a_session": (after.rss - before.rss) / row["sessions"],
                "pss_a_session": (after.pss - before.pss) / row["sessions"],
                "errors": {"closed": {}},
            }


def _printed(bench: Bench, command: list[str]) -> Row:
    """Run a program that puts load on a server, and return its output."""
    pinned = ["taskset", "-c", str(bench.load.core), *command]
    done = subprocess.run(pinned, check=True, stdout=subprocess.PIPE, text=True)
    row: Row = json.loads(done.stdout)
    return row


@contextmanager
def _holding(bench: Bench, command: list[str]) -> Iterator[None]:
    """Hold sessions open for a block."""
    pinned = ["taskset", "-c", str(bench.load.core), *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(pinned, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        if "opened" not in process.stdout.readline():
            raise RuntimeError(f"no sessions were opened by {' '.join(command)}")
        yield


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "steps": steps,
    "round_trip": round_trip,
    "open": opening,
    "memory": memory,
    "scale": scale,
    "frames": frames,
    "start": start,
    "client": client,
    "vector": vector,
    "cold": cold,
    "churn": churn,
    "kept": kept,
    "mcp": mcp,
    "mcp_memory": mcp_memory,
}
