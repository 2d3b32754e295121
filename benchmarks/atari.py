"""The parts about Atari: frames of Pong a second, of many games stepped together.

With four frames of the emulator a step, as agents are trained, a frame's cost is mostly the
emulator's, and that is the same for all. So beside the two packages stands ALE alone, in the
process that wants the frames; and one part shows every frame of the emulator, where what carries
them counts for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.contenders import BARE, JSON, OURS, PUBLIC, Client, Contender
from benchmarks.measure import Bench, Row, settle

__all__ = ["CLIENTS", "PARTS"]

GAMES = (8, 32)  # stepped together
QUICK_GAMES = (8,)
PROGRAM = "atari_frames.py"

# Each drives a server of its own side; bare ALE needs none.
CLIENTS = (
    Client("public clients of atari", PUBLIC, PROGRAM, "clients"),
    Client("ours VectorEnv of atari", OURS, PROGRAM, "vector"),
    Client("ours send and recv of atari", OURS, PROGRAM, "pipeline"),
    Client("bare ALE", BARE, PROGRAM, "alone"),
)
FILES = {OURS: "atari_ours", PUBLIC: "atari_public"}


@dataclass(frozen=True)
class Shown:
    """What is seen of a game: the kind of a frame, and how many the emulator makes for it."""

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
    """Steps a second of games in a closed loop, until their frames are arrays of NumPy."""
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
