"""The parts about Atari: frames of Pong per second, for many games that are stepped together.

With four emulator frames per step, as agents are trained, most of a frame's cost is the emulator's,
which is the same for all contenders. So the results also have ALE alone, in the process that wants
the frames. One part shows every frame of the emulator, where the cost of transporting frames weighs
more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.contenders import BARE, JSON, OURS, PUBLIC, Client, Contender
from benchmarks.measure import Bench, Row, settle

__all__ = ["CLIENTS", "PARTS"]

GAMES = (8, 32)  # games stepped together
QUICK_GAMES = (8,)
PROGRAM = "atari_frames.py"

# Each client drives a server of its own side; bare ALE needs no server.
CLIENTS = (
    Client("public clients of atari", PUBLIC, PROGRAM, "clients"),
    Client("ours VectorEnv of atari", OURS, PROGRAM, "vector"),
    Client("ours send and recv of atari", OURS, PROGRAM, "pipeline"),
    Client("bare ALE", BARE, PROGRAM, "alone"),
)
FILES = {OURS: "atari_ours", PUBLIC: "atari_public"}


@dataclass(frozen=True)
class Shown:
    """The frames of a game: their kind, and the number of emulator frames for each."""

    obs_type: str
    frameskip: int

    def server(self, client: Client) -> Contender:
        name = f"server of {client.name} {self.obs_type} {self.frameskip}"
        environment = {"ATARI_OBS_TYPE": self.obs_type, "ATARI_FRAMESKIP": str(self.frameskip)}
        return Contender(
            name, client.whose, JSON, file=FILES[client.whose], environment=environment
        )

    def options(self) -> tuple[object, ...]:
        return ("--obs-type", self.obs_type, "--frameskip", self.frameskip)


def frames(bench: Bench, shown: Shown) -> Iterator[Row]:
    """Measure steps per second in a closed loop, until the frames are NumPy arrays."""
    clients = bench.chosen(CLIENTS)
    points = QUICK_GAMES if bench.plan.is_quick else GAMES
    with ExitStack() as stack:
        servers = {
            client.name: stack.enter_context(bench.started(shown.server(client)))
            for client in clients
            if client.whose in FILES
        }
        for server in servers.values():
            server.wait_until_healthy()
        for client, row in bench.turns(clients, bench.plan.rounds, points):
            settle(servers)
            of = servers.get(client.name)
            cpu = ("--cpu-of", *of.pids()) if of is not None else ()
            games = ("--games", row["sessions"], "--seconds", bench.plan.window_s)
            url = "none" if of is None else of.url
            yield row | bench.play(client, url, *games, *shown.options(), *cpu)


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "atari_rgb": partial(frames, shown=Shown("rgb", 4)),
    "atari_grayscale": partial(frames, shown=Shown("grayscale", 4)),
    "atari_every_frame": partial(frames, shown=Shown("rgb", 1)),
}
