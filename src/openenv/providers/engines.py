"""Finding an engine that runs containers: Docker's, or Podman's, which speaks the same API."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openenv._internal.net.proxies import proxy_for
from openenv._internal.packages import needs
from openenv.errors import ProviderError

__all__ = ["About", "about", "find_engine", "holder_of", "podmans_runtime", "sdk"]

PODMAN_START_S = 20.0
CONNECTIONS = 64  # at once to one engine: each server that starts takes one for a while
SILENCE_S = 120.0

# Podman's service, which ends with this process, however that ends: standard input is the lifeline.
_SERVICE = 'podman system service --time=0 "$1" </dev/null & read -r _; kill $! && wait'

HOW = (
    "install Docker (https://docs.docker.com/engine/install) or Podman (apt-get install podman), "
    "or name an engine by DOCKER_HOST"
)


def sdk() -> Any:
    """Docker's SDK.

    Raises:
        MissingPackage: It is not installed.
    """
    with needs("LocalDockerProvider", "pip install 'openenv[docker]'"):
        import docker
    return docker


def find_engine(address: str | None = None) -> Any:
    """Connect to an engine: a client of Docker's SDK (`docker.APIClient`).

    Args:
        address: Such as ``unix:///run/podman/podman.sock``. By default that of DOCKER_HOST, or of
            Docker's current context, or else the first that answers: Docker's and Podman's sockets
            of this user and of the machine; and where there is only the program ``podman``, its
            service, which is started for as long as this process lives.

    Raises:
        MissingPackage: Docker's SDK is not installed.
        ProviderError: There is no engine, or it does not answer.
    """
    docker = sdk()
    told = address or os.environ.get("DOCKER_HOST") or _of_context()
    if told is not None:
        if told.startswith("unix://") and not _listens(told.removeprefix("unix://")):
            raise ProviderError(f"no engine answers at {told}: nobody listens there; {HOW}")
        try:
            return _client(docker, told)
        except docker.errors.DockerException as error:
            raise ProviderError(f"no engine answers at {told}: {error}; {HOW}") from None
    tried = []
    for path in _sockets():
        if not _listens(path):
            tried.append(path)
            continue
        try:
            return _client(docker, f"unix://{path}")
        except docker.errors.DockerException as error:
            tried.append(f"{path} ({error})")
    if shutil.which("podman"):
        return _client(docker, _podman.address())
    raise ProviderError(f"there is no engine for containers at {', '.join(tried)}; {HOW}")


def _client(docker: Any, address: str) -> Any:
    client = _class_for(docker, address)(
        base_url=address, version="auto", timeout=SILENCE_S, max_pool_size=CONNECTIONS
    )
    # It would leave its connections to be found unclosed.
    weakref.finalize(client, _close_all, list(client.adapters.values()))
    client.ping()
    return client


def _class_for(docker: Any, address: str) -> Any:
    """The SDK's client; for an engine of this machine, one that asks no proxy for it."""
    if proxy_for(re.sub(r"^\w+://", "http://", address)) is not None:
        return docker.APIClient

    class Direct(docker.APIClient):  # type: ignore[misc, name-defined, unused-ignore]
        # Of requests: whether it reads the variables. The SDK asks as soon as it is made.
        trust_env = property(lambda self: False, lambda self, wanted: None)

    return Direct


@dataclass(frozen=True)
class About:
    """What matters of an engine.

    Attributes:
        is_podman: It is Podman, which does not do all that Docker's API says.
        is_rootless: It has no rights of an administrator.
        is_elsewhere: Its containers run in a virtual machine, or on another one.
        processors: How many there are.
        not_held: What it is told to limit, and does not.
    """

    is_podman: bool
    is_rootless: bool
    is_elsewhere: bool
    processors: int | None
    not_held: tuple[str, ...]


_LIMITS = {  # as Docker says that it holds them, and the controller of Linux
    "memory": ("MemoryLimit", "memory"),
    "processors": ("CpuCfsQuota", "cpu"),
    "processes": ("PidsLimit", "pids"),
}


def about(client: Any) -> About:
    """Ask an engine what it is.

    Raises:
        docker.errors.DockerException: It does not say.
    """
    info = client.info()
    is_rootless = any("rootless" in one for one in info.get("SecurityOptions") or ())
    not_held = [limit for limit, (name, _) in _LIMITS.items() if info.get(name) is False]
    names = {one.get("Name") for one in client.version().get("Components") or ()}
    is_podman = "Podman Engine" in names
    if is_podman and (host := _of_podman(client, "info").get("host")):
        is_rootless = bool(host.get("security", {}).get("rootless"))
        if is_rootless:  # what Docker's words say is said of the machine
            held = host.get("cgroupControllers") or ()
            not_held = [limit for limit, (_, name) in _LIMITS.items() if name not in held]
    return About(
        is_podman,
        is_rootless,
        sys.platform != "linux" or "Desktop" in str(info.get("OperatingSystem")),
        info.get("NCPU"),
        tuple(not_held),
    )


def podmans_runtime(client: Any, container: str) -> str | None:
    """The runtime that Podman gave a container; None where it does not say."""
    return _of_podman(client, f"containers/{container}/json").get("OCIRuntime")


def _of_podman(client: Any, what: str) -> dict[str, Any]:
    """What Podman says by its own API, which tells more than Docker's."""
    with contextlib.suppress(OSError, ValueError):  # of the HTTP client, all are either
        return dict(client.get(f"{client.base_url}/v4.0.0/libpod/{what}").json())
    return {}


def _close_all(adapters: list[Any]) -> None:
    for adapter in adapters:
        with contextlib.suppress(Exception):  # of Docker's SDK; nobody uses it any more
            adapter.close()


def _of_context() -> str | None:
    """The engine of Docker's current context; None for the default one."""
    from docker.context import ContextAPI

    with contextlib.suppress(Exception):  # a file that another program has written
        context = ContextAPI.get_current_context()
        if context is not None and context.name != "default":
            return str(context.Host)
    return None


def holder_of(image: str) -> str | None:
    """The engine of this machine that has an image, or may have it, as far as can be told without
    Docker's SDK; None where there is none.
    """
    for program in filter(None, map(shutil.which, ("docker", "podman"))):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            asking = [program, "image", "inspect", image]
            done = subprocess.run(  # nosec B603  # no shell
                asking, stdin=subprocess.DEVNULL, capture_output=True, timeout=SILENCE_S
            )
            return program if done.returncode == 0 else None
    sockets = (path for path in _sockets() if os.path.exists(path))
    return os.environ.get("DOCKER_HOST") or next(sockets, None)


def _sockets() -> Iterator[str]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() != 0 and runtime:
        yield f"{runtime}/docker.sock"
        yield f"{runtime}/podman/podman.sock"
    yield "/var/run/docker.sock"
    yield "/run/podman/podman.sock"


def _listens(path: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        return True
    return False


class _Podman:
    """Podman's service: one for this process."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._owner = 0

    def address(self) -> str:
        with self._turn:
            is_ours = self._owner == os.getpid()
            if self._process is None or not is_ours or self._process.poll() is not None:
                self._start()
            return self._address

    def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="openenv-podman-"))
        self._address, self._owner = f"unix://{folder}/podman.sock", os.getpid()
        log = folder / "log"
        with log.open("wb") as file:
            process = self._process = subprocess.Popen(  # nosec B603, B607  # whichever podman
                ["sh", "-c", _SERVICE, "openenv", self._address],
                cwd=folder,  # where it leaves a file for each container that took too much memory
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        weakref.finalize(self, _end, process, str(folder), os.getpid())
        deadline = time.monotonic() + PODMAN_START_S
        while not _listens(f"{folder}/podman.sock"):
            if process.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace").strip()
                _end(process, str(folder), os.getpid())
                raise ProviderError(f"podman's service did not start: {words or 'no word of it'}")
            time.sleep(0.02)


def _end(process: subprocess.Popen[bytes], folder: str, owner: int) -> None:
    if os.getpid() != owner:  # a forked child's copy
        return
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    shutil.rmtree(folder, ignore_errors=True)


_podman = _Podman()
