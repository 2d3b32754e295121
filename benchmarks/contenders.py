"""The contenders: servers, the frames that they understand, and client programs.

To add a contender, add a row here; a figure of `report.py` refers to it by its name.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.peer import EXTRAS, PEER
from msgspec import msgpack

__all__ = [
    "BARE",
    "CLIENTS",
    "COLDS",
    "ECHOES",
    "FRAMES",
    "JSON",
    "OURS",
    "PUBLIC",
    "TOOLS",
    "VECTORS",
    "Client",
    "Contender",
    "Frames",
    "Tools",
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

OURS, PUBLIC, BARE, FASTMCP = "ours", "public 0.10", "bare", "FastMCP"
PYTHONS = {
    FASTMCP: Path(sys.executable),
    OURS: Path(sys.executable),
    PUBLIC: PEER / "bin" / "python",
    BARE: Path(sys.executable),
}
# Each side imports its own package, and nothing of the other side.
PATHS = {OURS: ROOT / "src", PUBLIC: EXTRAS, BARE: ROOT / "src", FASTMCP: HERE / "servers"}

SERVERS = HERE / "servers"
BARE_FILE = HERE / "servers" / "bare.py"

UVICORN = (
    *("-m", "uvicorn", "{file}:app", "--app-dir", SERVERS, "--port", "{port}"),
    *("--loop", "uvloop", "--http", "httptools", "--ws", "auto", "--backlog", "4096"),
    *("--no-access-log", "--log-level", "warning"),
)
SERVE: dict[str, tuple[str | Path, ...]] = {
    OURS: (
        *(PYTHONS[OURS], "-m", "openenv.cli", "serve", f"{SERVERS}/{{file}}.py:app"),
        *("--port", "{port}"),
    ),
    PUBLIC: (PYTHONS[PUBLIC], *UVICORN),
    FASTMCP: (PYTHONS[FASTMCP], *UVICORN),
    BARE: (PYTHONS[BARE], BARE_FILE, "--port", "{port}"),
}


@dataclass(frozen=True)
class Frames:
    """The load generator's frames for a server, and the expected parts of its answers."""

    name: str
    reset: bytes
    step: bytes
    check_reset: str
    check: str
    opening: tuple[bytes, ...] = ()
    flags: tuple[str, ...] = ()  # --subprotocol, --binary, --sequence-offset, --greeting, ...

    def options(self, folder: Path) -> list[str]:
        """Write the frames into `folder`, and return the options that name the files."""
        folder.mkdir(parents=True, exist_ok=True)
        options = [*self.flags, "--check", self.check, "--check-reset", self.check_reset]
        files = [("--open", frame) for frame in self.opening]
        files += [("--reset", self.reset), ("--step", self.step)]
        for number, (option, content) in enumerate(files):
            path = folder / f"{self.name}-{number}"
            path.write_bytes(content)
            options += [option, str(path)]
        return options


RESET = b'{"type":"reset","data":{}}'
STEP = b'{"type":"step","data":{"message":"hello, world"}}'

# An error repeats the faulty part of a request; only an answer has both fields in a row.
JSON = Frames("json", RESET, STEP, '"echoed":"",', '"echoed":"hello, world","length":12')


def _version_1(name: str, check: str) -> Frames:
    """Return the MessagePack frames of version 1, for a connection with one session."""

    def request(kind: str, data: dict[str, str]) -> tuple[bytes, int]:
        """Return a request, and the place of its number: four bytes that are counted up in
        place."""
        head = b"\x83" + msgpack.encode("type") + msgpack.encode(kind) + msgpack.encode("id")
        tail = msgpack.encode("data") + msgpack.encode(data)
        return head + b"\xce\x00\x00\x00\x01" + tail, len(head) + 1

    reset, _ = request("reset", {})
    step, place = request("step", {"message": "hello, world"})
    asked = ("--subprotocol", "openenv.v1.msgpack", "--binary", "--greeting", "1")
    # In between, the server acknowledges the received frames.
    counted = ("--sequence-offset", str(place), "--aside", "received")
    opening = (msgpack.encode({"type": "open"}),)
    # An error never names a field of the observation.
    return Frames(name, reset, step, check, check, opening, (*asked, *counted))


MSGPACK = _version_1("msgpack", "echoed")
MSGPACK_SCREEN = _version_1("msgpack-screen", "pixels")

KEY = "only-for-measuring"
MSGPACK_KEY = replace(
    MSGPACK, name="msgpack-key", flags=(*MSGPACK.flags, "--header", f"Authorization: Bearer {KEY}")
)

JSON_SCREEN = Frames("json-screen", RESET, STEP, '"pixels":[', '"pixels":[')
RAW_SCREEN = Frames("raw-screen", RESET, STEP, "", "")


@dataclass(frozen=True)
class Contender:
    """A server, started as its users start it, with its frames.

    `sessions` are the numbers of sessions at which its steps are measured, `()` for all; `in_quick`
    is whether a quick run measures it; `pinned` is false for a server of several processes, which
    may use every core except the load generator's.
    """

    name: str
    whose: str
    frames: Frames
    variant: str = "sync"
    sessions: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    in_quick: bool = True
    pinned: bool = True
    file: str = "echo_environment"

    def command(self, port: int) -> list[str]:
        words = (*SERVE[self.whose], *self.options)
        return [str(word).format(port=port, file=self.file) for word in words]

    def variables(self) -> dict[str, str]:
        """Return the environment variables of the server's process."""
        return {
            **clean_environment(self.whose),
            "ECHO": self.variant,
            "ECHO_SESSIONS": "20000",
            "OPENENV_LOG_LEVEL": "warning",
            **self.environment,
        }


def clean_environment(whose: str) -> dict[str, str]:
    """Return this process's variables, without those that affect Python or OpenEnv."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENENV", "ECHO"))}
    source = os.environ.get("BENCH_SOURCE") if whose == OURS else None
    return {**kept, "PYTHONPATH": source or str(PATHS[whose]), "PYTHONUNBUFFERED": "1"}


SESSIONS = (1, 32, 256, 1024, 4096)  # the numbers of sessions at which steps are measured

ECHOES = (
    Contender("public sync", PUBLIC, JSON),
    Contender("ours sync", OURS, JSON),
    Contender("public async", PUBLIC, JSON, "async", sessions=SESSIONS, in_quick=False),
    Contender("ours async", OURS, JSON, "async", sessions=SESSIONS, in_quick=False),
    Contender("ours v1", OURS, MSGPACK),
    Contender(
        *("ours v1 with a key", OURS, MSGPACK_KEY, "sync", (1, 256)),
        environment={"OPENENV_API_KEY": KEY},
    ),
    Contender("ours any thread", OURS, JSON, "any thread", sessions=(1, 256), in_quick=False),
    Contender("ours never blocks", OURS, JSON, "never blocks", sessions=(1, 256, 4096)),
    Contender(
        *("ours 2 workers", OURS, JSON, "sync", SESSIONS, ("--workers", "2")),
        in_quick=False,
        pinned=False,
    ),
    Contender("bare", BARE, JSON),
)

FRAMES = (
    Contender("public frames", PUBLIC, JSON_SCREEN, "frame"),
    Contender("ours frames", OURS, JSON_SCREEN, "frame"),
    Contender("ours v1 frames", OURS, MSGPACK_SCREEN, "array"),
    Contender("bare frames", BARE, RAW_SCREEN, options=("--frames",)),
)


@dataclass(frozen=True)
class Client:
    """A program that drives a server and prints its measurements, run by one side's Python."""

    name: str
    whose: str
    program: str
    mode: str
    in_quick: bool = True

    def command(self, url: str, *arguments: object) -> list[str]:
        program = HERE / "clients" / self.program
        return [str(w) for w in (PYTHONS[self.whose], program, url, self.mode, *arguments)]


# Each client drives a bare server of its own.
CLIENTS = (
    Client("public await", PUBLIC, "one_session.py", "async"),
    Client("ours await", OURS, "one_session.py", "async"),
    Client("public sync()", PUBLIC, "one_session.py", "sync"),
    Client("ours sync()", OURS, "one_session.py", "sync"),
    Client("bare picows", BARE, "bare_client.py", "async"),
)


@dataclass(frozen=True)
class Tools:
    """A server with the tool `echo_message`, and the dialect of the requests to `/mcp`."""

    name: str
    server: Contender
    dialect: str
    in_quick: bool = True

    def command(self, port: int, method: str, *options: object) -> list[str]:
        program = HERE / "clients" / "mcp_load.py"
        words = (PYTHONS[BARE], program, port, self.dialect, method, *options)
        return [str(word) for word in words]


_PUBLIC = Contender("public mcp", PUBLIC, JSON, file="mcp_environment")
_OURS = Contender("ours mcp", OURS, JSON, file="mcp_environment")
_FUNCTIONS = Contender("ours @tool", OURS, JSON, file="mcp_functions")
_FASTMCP = Contender("FastMCP", FASTMCP, JSON, file="fastmcp_alone")

# "json-rpc" is the public package's dialect at `/mcp`; the years are revisions of MCP.
TOOLS = (
    Tools("public json-rpc", _PUBLIC, "private"),
    Tools("ours json-rpc", _OURS, "private"),
    Tools("ours @tool json-rpc", _FUNCTIONS, "private"),
    Tools("FastMCP 2026", _FASTMCP, "modern"),
    Tools("ours 2026", _OURS, "modern"),
    Tools("ours @tool 2026", _FUNCTIONS, "modern"),
    Tools("FastMCP 2025", _FASTMCP, "handshake", in_quick=False),
    Tools("ours 2025", _OURS, "handshake", in_quick=False),
    Tools("ours @tool 2025", _FUNCTIONS, "handshake", in_quick=False),
)

# A trainer's start: a fresh server, and clients of one process, each from connect to close.
COLDS = (
    Client("public clients, sync", PUBLIC, "many_sessions.py", "sync"),
    Client("public clients, async", PUBLIC, "many_sessions.py", "async"),
    *(
        Client(f"ours clients, {variant}", OURS, "many_sessions.py", variant)
        for variant in ("sync", "any thread", "never blocks", "async")
    ),
)

# Many sessions of one process; each client drives its own side's server, by the name in ECHOES.
VECTORS = (
    (Client("public clients", PUBLIC, "many_sessions.py", "clients"), "public sync"),
    (Client("ours clients", OURS, "many_sessions.py", "clients"), "ours sync"),
    (Client("ours VectorEnv", OURS, "many_sessions.py", "vector"), "ours sync"),
    (Client("ours send and recv", OURS, "many_sessions.py", "halves"), "ours sync"),
)
