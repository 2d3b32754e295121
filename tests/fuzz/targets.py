"""What is fuzzed, by name."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz import files, replies, served
from fuzz.expanding import size
from fuzz.invariants import FILE_S, Watch
from fuzz.workbench import Tools, Workbench

CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class Target:
    """Something that reads what others have written.

    Attributes:
        name: Its name, which is also that of its folder in ``corpus``.
        about: What it reads.
        seeds: Inputs to begin with; those in its folder come to them.
        open: Gives what tries an input, for the length of a block.
    """

    name: str
    about: str
    seeds: Callable[[], list[bytes]]
    open: Callable[[], contextlib.AbstractContextManager[Watch]]

    def inputs(self) -> list[bytes]:
        """All that it begins with."""
        stored = sorted((CORPUS / self.name).glob("*"))
        return [*self.seeds(), *(path.read_bytes() for path in stored)]


def _on_a_server(
    environment: type, send: Callable[[served.Served, bytes], bytes]
) -> Callable[[], contextlib.AbstractContextManager[Watch]]:
    @contextlib.contextmanager
    def opened() -> Iterator[Watch]:
        server = served.Served(environment, send)
        try:
            yield server.watch()
        finally:
            server.close()

    return opened


def _from_a_file(name: str) -> Callable[[], contextlib.AbstractContextManager[Watch]]:
    @contextlib.contextmanager
    def opened() -> Iterator[Watch]:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            reader = files.Reader(Path(folder), *files.READERS[name])
            yield Watch(reader, size, most_s=FILE_S, reads_only=name != "replay")

    return opened


def _seeds_of(name: str) -> Callable[[], list[bytes]]:
    return lambda: files.seeds(name)


def _target_of_file(name: str) -> Target:
    (filename, _) = files.READERS[name]
    return Target(name, f"a file such as {filename}", _seeds_of(name), _from_a_file(name))


TARGETS = {
    target.name: target
    for target in (
        Target(
            "bytes",
            "bytes that come to a server",
            served.seeds_bytes,
            _on_a_server(Workbench, served.send_bytes),
        ),
        Target(
            "requests",
            "requests of HTTP: routes, headers, bodies",
            served.seeds_requests,
            _on_a_server(Workbench, served.send_request),
        ),
        Target(
            "v0",
            "texts of version 0",
            served.seeds_v0,
            _on_a_server(Workbench, served.send_v0),
        ),
        Target(
            "v1-json",
            "texts of version 1",
            served.seeds_v1_json,
            _on_a_server(Workbench, served.send_v1_json),
        ),
        Target(
            "v1-msgpack",
            "frames of MessagePack, and the arrays in them",
            served.seeds_v1_msgpack,
            _on_a_server(Workbench, served.send_v1_msgpack),
        ),
        Target(
            "mcp",
            "messages of agents, and of the older JSON-RPC",
            served.seeds_mcp,
            _on_a_server(Tools, served.send_mcp),
        ),
        Target(
            "watch",
            "texts of those who watch sessions",
            served.seeds_watch,
            _on_a_server(Workbench, served.send_watch),
        ),
        Target("replies", "what a server answers to a client", replies.seeds, replies.opened),
        *(_target_of_file(name) for name in files.READERS),
    )
}
