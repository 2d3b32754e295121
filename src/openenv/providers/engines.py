"""Discovery of the container engine: Docker, or Podman, which has the same API."""

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
from openenv._internal.redaction import redact
from openenv.errors import ProviderError

PODMAN_START_S = 20.0
CONNECTIONS = 64  # per engine; each starting server uses one for a while
SILENCE_S = 120.0

# Runs Podman's service, which ends with this process: standard input is the lifeline.
_SERVICE = 'podman system service --time=0 "$1" </dev/null & read -r _; kill $! && wait'

HOW = (
    "install Docker (https://docs.docker.com/engine/install) or Podman (apt-get install podman), "
    "or name an engine by DOCKER_HOST"
)


def sdk() -> Any:
    """Import Docker's SDK, or raise MissingPackage."""
    with needs("LocalDockerProvider", "pip install 'openenv[docker]'"):
        import docker
    return docker


def find_engine(address: str | None = None) -> Any:
    """Connect to an engine, and return a client of Docker's SDK (`docker.APIClient`).

    Args:
        address: Address of the engine, such as ``unix:///run/podman/podman.sock``. By default that
            of DOCKER_HOST or of Docker's current context. Without either, the first of this user's
            and the machine's Docker and Podman sockets that answers. If only the program ``podman``
            is installed, its service is started and runs as long as this process.

    Raises:
        MissingPackage: Docker's SDK is not installed.
        ProviderError: No engine was found, or the engine does not answer.
    """
    docker = sdk()
    told = address or os.environ.get("DOCKER_HOST") or _of_context()
    if told is not None:
        if told.startswith("unix://") and not _listens(told.removeprefix("unix://")):
            raise ProviderError(f"no engine answers at {told}: nothing listens there; {HOW}")
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
    # The SDK does not close its connections.
    weakref.finalize(client, _close_all, list(client.adapters.values()))
    client.ping()
    return client


def _class_for(docker: Any, address: str) -> Any:
    """Return the SDK's client class; for addresses without a proxy, one that ignores proxies."""
    if proxy_for(re.sub(r"^\w+://", "http://", address)) is not None:
        return docker.APIClient

    class Direct(docker.APIClient):  # type: ignore[misc, name-defined, unused-ignore]
        # False keeps `requests` from reading the proxy variables. The SDK connects in its
        # constructor, so an attribute set afterwards would be too late.
        trust_env = property(lambda self: False, lambda self, wanted: None)

    return Direct


@dataclass(frozen=True)
class EngineInfo:
    """The properties of an engine that matter to a provider.

    Attributes:
        is_podman: Whether the engine is Podman, which does not support all of Docker's API.
        is_rootless: Whether the engine runs without administrator rights.
        is_elsewhere: Whether containers run in a virtual machine, or on another machine.
        processors: The number of processors.
        not_held: The resources whose limits the engine does not enforce.
    """

    is_podman: bool
    is_rootless: bool
    is_elsewhere: bool
    processors: int | None
    not_held: tuple[str, ...]


_LIMITS = {  # the field of Docker's info, and Linux's cgroup controller
    "memory": ("MemoryLimit", "memory"),
    "processors": ("CpuCfsQuota", "cpu"),
    "processes": ("PidsLimit", "pids"),
}


def engine_info(client: Any) -> EngineInfo:
    """Ask an engine for its properties.

    Raises:
        docker.errors.DockerException: The engine does not answer.
    """
    info = client.info()
    is_rootless = any("rootless" in one for one in info.get("SecurityOptions") or ())
    not_held = [limit for limit, (name, _) in _LIMITS.items() if info.get(name) is False]
    names = {one.get("Name") for one in client.version().get("Components") or ()}
    is_podman = "Podman Engine" in names
    if is_podman and (host := _of_podman(client, "info").get("host")):
        is_rootless = bool(host.get("security", {}).get("rootless"))
        if is_rootless:  # Docker's API then describes the machine's limits, not the user's
            held = host.get("cgroupControllers") or ()
            not_held = [limit for limit, (_, name) in _LIMITS.items() if name not in held]
    return EngineInfo(
        is_podman,
        is_rootless,
        sys.platform != "linux" or "Desktop" in str(info.get("OperatingSystem")),
        info.get("NCPU"),
        tuple(not_held),
    )


def podmans_runtime(client: Any, container: str) -> str | None:
    """Return the OCI runtime of a Podman container; None if unknown."""
    return _of_podman(client, f"containers/{container}/json").get("OCIRuntime")


def _of_podman(client: Any, what: str) -> dict[str, Any]:
    """Query Podman's own API, which returns more than Docker's; return {} on an error."""
    with contextlib.suppress(OSError, ValueError):  # the base classes of the HTTP client's errors
        return dict(client.get(f"{client.base_url}/v4.0.0/libpod/{what}").json())
    return {}


@contextlib.contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Convert errors of Docker's SDK in the block to ProviderError."""
    try:
        yield
    except sdk().errors.DockerException as error:
        words = getattr(error, "explanation", None) or error
        raise ProviderError(redact(f"{what}: {words}")) from None


def inspect_image(client: Any, image: str) -> Any:
    """Return an engine's description of an image; None if the engine does not have the image."""
    try:
        return client.inspect_image(image)
    except sdk().errors.ImageNotFound:
        return None


def _close_all(adapters: list[Any]) -> None:
    for adapter in adapters:
        with contextlib.suppress(Exception):  # errors of Docker's SDK; the client is no longer used
            adapter.close()


def _of_context() -> str | None:
    """Return the engine's address in Docker's current context; None for the default context."""
    from docker.context import ContextAPI

    with contextlib.suppress(Exception):  # the file is another program's, and may be invalid
        context = ContextAPI.get_current_context()
        if context is not None and context.name != "default":
            return str(context.Host)
    return None


def holder_of(image: str) -> str | None:
    """Return the engine of this machine that has, or may have, an image; None if there is none.

    The engine is named by its program or its address. Docker's SDK is not needed.
    """
    has_answered = False
    for program in filter(None, map(shutil.which, ("docker", "podman"))):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            asking = [program, "image", "inspect", image]
            done = subprocess.run(  # nosec B603  # no shell
                asking, stdin=subprocess.DEVNULL, capture_output=True, timeout=SILENCE_S
            )
            if done.returncode == 0:
                return program
            has_answered = True
    if has_answered:
        return None
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
    """Podman's service, started at most once per process."""

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
                cwd=folder,  # podman writes a file here for each container that ran out of memory
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
                raise ProviderError(f"podman's service did not start: {words or 'no output'}")
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
