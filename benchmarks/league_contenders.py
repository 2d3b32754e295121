"""The contenders of the league: packages, servers, client programs, and what each cannot do."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders import OURS, PUBLIC, PYTHONS, SERVE, clean_environment
from benchmarks.peer import peer_python

__all__ = [
    "CARTPOLES",
    "CONTENDERS",
    "WORKLOADS",
    "Contender",
    "Limit",
    "Peer",
    "Unavailable",
    "plain",
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SERVERS, CLIENTS = HERE / "league_servers", HERE / "league_clients"

WORKLOADS = ("cold", "churn", "warm", "kept")
# Variables that hold the places where a package index is, and its certificates, for `uv`.
UV = ("UV_", "SSL_CERT_FILE")


def plain(text: str) -> str:
    """Return a message without the addresses and folders of this machine."""
    return re.sub(r"\w+://\S+", "(address)", text).replace(f"{ROOT}/", "")


class Unavailable(Exception):
    """A contender's packages cannot be installed; the text says why."""


@dataclass(frozen=True)
class Peer:
    """A virtual environment of a contender's own, which is made on first use.

    Attributes:
        name: Name of the folder `.peers/league_NAME`.
        packages: The packages, as `pip install` takes them.
        at_least: The oldest Python that the packages run on.
    """

    name: str
    packages: tuple[str, ...]
    at_least: tuple[int, int] = (3, 10)

    @property
    def folder(self) -> Path:
        return ROOT / ".peers" / f"league_{self.name}"

    @property
    def distribution(self) -> str:
        """Return the name of the package that the contender is."""
        return self.packages[0].partition("==")[0]

    def python(self) -> Path:
        """Return the Python of the virtual environment, which is made if it is missing.

        Raises:
            Unavailable: There is no such Python, or the packages cannot be installed.
        """
        python, ready = self.folder / "bin" / "python", self.folder / ".ready"
        wanted = "\n".join(self.packages)
        if ready.exists() and ready.read_text() == wanted:
            return python
        print(f"installing {' '.join(self.packages)} into {self.folder}", file=sys.stderr)
        base = _python(self.at_least)
        ready.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        install = [sys.executable, str(ROOT / "scripts" / "install.py"), str(python)]
        for command in ([base, "-m", "venv", str(self.folder)], [*install, *self.packages]):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                said = (done.stderr or done.stdout).strip().splitlines()[-3:]
                raise Unavailable(plain(f"{' '.join(self.packages)}: {' '.join(said)}"))
        ready.write_text(wanted)
        return python


def _python(at_least: tuple[int, int]) -> str:
    """Return this Python, or a newer one if the packages need it."""
    if sys.version_info >= at_least:
        return sys.executable
    for minor in range(at_least[1], at_least[1] + 3):
        for found in sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")):
            return str(found)
        if named := shutil.which(f"python3.{minor}"):
            return named
    raise Unavailable(f"needs Python {at_least[0]}.{at_least[1]}, which this machine lacks")


@dataclass(frozen=True)
class Limit:
    """The most that a contender is given to do, and the reason."""

    why: str
    sessions: int | None = None
    episodes: int | None = None


@dataclass(frozen=True)
class Contender:
    """A server, and the client program that drives it.

    Attributes:
        name: The name in the tables.
        what: The client, the server and their settings, for the report.
        client: Name of the client program.
        how: The variant of the client program.
        server: Words of the server's command, with `{python}` and `{port}`; empty without a server.
        health: Path that answers with 200 when the server is ready; empty to wait for its port.
        peer: The virtual environment; None for ours and for the public package.
        whose: The side whose Python runs the programs, if there is no `peer`.
        variables: Environment variables of the server.
        limits: By workload, or by `all`: what is cut.
        cannot: By workload: the reason why it cannot be done.
        starts_within_s: How long the server may take to start.
    """

    name: str
    what: str
    client: str
    how: str = ""
    server: tuple[str, ...] = ()
    health: str = ""
    peer: Peer | None = None
    whose: str = OURS
    variables: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)
    starts_within_s: float = 60

    def python(self) -> Path:
        """Return the Python that runs the contender's programs.

        Raises:
            Unavailable: Its packages cannot be installed.
        """
        if self.peer is not None:
            return self.peer.python()
        if self.whose != PUBLIC:
            return PYTHONS[self.whose]
        try:
            return peer_python()
        except SystemExit as failed:
            raise Unavailable(str(failed)) from None

    def server_command(self, port: int) -> list[str]:
        python = self.python()
        return [word.format(python=python, port=port) for word in self.server]

    def client_command(self, order: str) -> list[str]:
        return [str(self.python()), str(CLIENTS / self.client), order]

    def environment(self) -> dict[str, str]:
        """Return the environment variables of server and client."""
        found = clean_environment(self.whose)
        if self.peer is not None:
            found["PYTHONPATH"] = str(SERVERS)
        if self.peer is VERIFIERS:  # it installs the packages of its harness, by uv
            sys.path.insert(0, str(ROOT / "scripts"))
            from install import told  # type: ignore[import-not-found]

            settings: dict[str, str] = told(sys.executable)
            found |= {k: v for k, v in settings.items() if k.startswith(UV)}
            found["PATH"] = f"{Path(sys.executable).parent}:{found['PATH']}"
        return {**found, "OPENENV_LOG_LEVEL": "warning", **self.variables}

    def limit(self, workload: str) -> Limit | None:
        return self.limits.get(workload) or self.limits.get("all")

    def versions(self) -> dict[str, Any]:
        """Return the versions of the contender's package and of its Python."""
        package = self.peer.distribution if self.peer is not None else "openenv"
        code = (
            "import importlib.metadata as m, platform, sys;"
            "print(m.version(sys.argv[1]), platform.python_version())"
        )
        command = [str(self.python()), "-c", code, package]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        version, python = done.stdout.split()
        return {package: version, "python": python}


def _served(whose: str) -> tuple[str, ...]:
    """Return the words of the command that serves the echo environment of ours or public's."""
    places = {"{file}": "openenv_echo"}
    words = [str(word) for word in SERVE[whose]]
    words = [word.replace(str(HERE / "servers"), str(SERVERS)) for word in words]
    return tuple(word.replace("{file}", places["{file}"]) for word in words)


VERIFIERS = Peer("verifiers", ("verifiers==0.4.0", "aiohttp"), (3, 11))
NEMO_GYM = Peer("nemo", ("nemo-gym==0.4.0",), (3, 12))
ORS = Peer("ors", ("openreward==0.1.167",), (3, 11))
GYMNASIUM = Peer("gymnasium", ("gymnasium==1.4.0", "numpy"))
RAY = Peer("ray", ("ray==2.60.0",))
ENVPOOL = Peer("envpool", ("envpool==1.2.5", "gymnasium==1.4.0", "numpy"))

PROCESSES = Limit("each session is a process of its own, which takes memory", sessions=64)
OUR_ECHO: dict[str, Any] = {"server": _served(OURS), "health": "/health"}
PUBLIC_ECHO: dict[str, Any] = {"server": _served(PUBLIC), "health": "/health", "whose": PUBLIC}

CONTENDERS = (
    Contender(
        "ours EnvClient",
        "`EnvClient` by await; the environment declares nothing",
        "ours_client.py",
        **OUR_ECHO,
    ),
    Contender(
        "ours EnvClient, never blocks",
        "the same; the environment declares `NEVER_BLOCKS`",
        "ours_client.py",
        variables={"ECHO": "light"},
        **OUR_ECHO,
    ),
    Contender(
        "ours VectorEnv",
        "one `VectorEnv` of all sessions; the environment declares nothing",
        "ours_client.py",
        how="vector",
        **OUR_ECHO,
    ),
    Contender(
        "public 0.10",
        "the async client of the public package; uvicorn with uvloop and httptools",
        "public_client.py",
        **PUBLIC_ECHO,
    ),
    Contender(
        "public 0.10, async",
        "the same, with `reset_async` and `step_async` in the environment",
        "public_client.py",
        variables={"ECHO": "async"},
        **PUBLIC_ECHO,
    ),
    Contender(
        "verifiers",
        "`EnvClient` of its environment server, one worker, its `null` harness and one shared tool "
        "server; the policy is a model server in the client's process; a step is a turn with one "
        "call of the tool; the harness is prepared by one episode before the measurement",
        "verifiers_client.py",
        server=("{python}", str(SERVERS / "verifiers_server.py"), "{port}"),
        peer=VERIFIERS,
        limits={
            "all": Limit("each episode is a process of its own", sessions=32),
            "churn": Limit(
                "each episode starts a process, which takes seconds of CPU time",
                sessions=32,
                episodes=64,
            ),
        },
        cannot={"kept": "a request runs one whole episode; there is no session to keep"},
        starts_within_s=120,
    ),
    Contender(
        "NeMo Gym",
        "a `SimpleResourcesServer` without the cluster of Ray that it starts by default, and "
        "`ServerClient` with a session's cookies; an episode ends with `/verify`",
        "nemo_gym_client.py",
        server=("{python}", str(SERVERS / "nemo_gym_echo.py"), "{port}"),
        health="/",
        peer=NEMO_GYM,
        starts_within_s=120,
    ),
    Contender(
        "ORS",
        "`openreward`'s environment server without its log, and `AsyncOpenReward`; a reset is the "
        "prompt of a new session",
        "ors_client.py",
        server=("{python}", str(SERVERS / "ors_echo.py"), "{port}"),
        health="/health",
        peer=ORS,
        variables={"OPENREWARD_LOG_LEVEL": "WARNING"},
        cannot={"kept": "a session is one episode; there is no reset"},
    ),
    Contender(
        "Gymnasium AsyncVectorEnv",
        "a process for each environment; no server, no network; texts by pipes",
        "gymnasium_client.py",
        peer=GYMNASIUM,
    ),
    Contender(
        "Ray actors",
        "an actor for each session, all asked before the first answer is awaited; the cluster is "
        "started before the measurement",
        "ray_client.py",
        peer=RAY,
        limits={
            "all": PROCESSES,
            "churn": Limit("each episode starts a process", sessions=64, episodes=256),
        },
    ),
    Contender(
        "bare socket",
        "picows and msgspec on both sides, without any framework: the limit of a WebSocket",
        "bare_clients.py",
        server=("{python}", str(HERE / "servers" / "bare.py"), "--port", "{port}"),
    ),
)

_CARTPOLE = tuple(word.replace("openenv_echo", "cartpole_environment") for word in _served(OURS))
OUR_CARTPOLE: dict[str, Any] = {
    "server": tuple(word.replace(str(SERVERS), str(HERE / "servers")) for word in _CARTPOLE),
    "health": "/health",
}
CARTPOLES = (
    Contender(
        "EnvPool",
        "C++, in the client's process",
        "cartpole_client.py",
        how="envpool",
        peer=ENVPOOL,
    ),
    Contender(
        "Gymnasium AsyncVectorEnv of CartPole",
        "a process for each environment",
        "cartpole_client.py",
        how="gymnasium",
        peer=GYMNASIUM,
    ),
    Contender(
        "ours VectorEnv of CartPole",
        "`VectorEnv`, with a server in another process",
        "cartpole_client.py",
        how="vector",
        **OUR_CARTPOLE,
    ),
    Contender(
        "ours GymnasiumVectorEnv of CartPole",
        "`GymnasiumVectorEnv`, with a server in another process",
        "cartpole_client.py",
        how="gymnasium-vector",
        **OUR_CARTPOLE,
    ),
)
