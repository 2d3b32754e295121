"""What this machine can do, found out by trying: the checks of `openenv doctor`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import openenv
from openenv._internal.redaction import redact

__all__ = ["Finding", "Status", "examine"]

# What one check may take. A program that is asked for its version gets less.
CHECK_S = 12.0
PROGRAM_S = 8.0
NETWORK_S = 3.0

FEW_FILES = 4096
LITTLE_DISK_GB = 2.0
LITTLE_MEMORY_GB = 1.0
PORT = 8000

INSTALL_ENGINE = "sudo apt-get install podman"
PROGRAMS = {  # what for, and what installs it
    "uv": ("environments in places of their own", "pip install uv"),
    "git": ("catalogues, and environments in repositories", "sudo apt-get install git"),
    "node": ("MCP servers and clients in TypeScript", "sudo apt-get install nodejs npm"),
}


class Status(str, Enum):
    """How it is with something."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


class Finding(NamedTuple):
    """One thing that this machine has, or has not.

    Attributes:
        area: What it belongs to.
        name: What it is.
        status: `missing` if it is not there, `broken` if it is there and does not work.
        detail: Its version; or what is wrong.
        cure: A command that mends it, where there is one.
    """

    area: str
    name: str
    status: Status
    detail: str
    cure: str | None = None


class Check(NamedTuple):
    """What looks at an area, or at one thing in it."""

    area: str
    name: str
    look: Callable[[], Iterator[Finding]]


def examine(on_done: Callable[[int], None] = lambda done: None) -> list[Finding]:
    """Run every check, all at once, each for no longer than `CHECK_S`.

    Args:
        on_done: Is told how many have ended.
    """
    results: dict[Check, list[Finding]] = {}

    def run(check: Check) -> None:
        try:
            results[check] = list(check.look())
        except Exception as error:
            why = redact(f"it cannot be told: {type(error).__name__}: {error}")
            results[check] = [Finding(check.area, check.name, Status.BROKEN, why)]

    threads = [  # daemons: one that hangs must not keep the program from its end
        threading.Thread(target=run, args=[check], daemon=True) for check in CHECKS
    ]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + CHECK_S
    for done, thread in enumerate(threads, 1):
        thread.join(max(0.0, ends - time.monotonic()))
        on_done(done)
    late = f"no answer within {CHECK_S:g} s"
    return [
        finding
        for check in CHECKS
        for finding in results.get(check, [Finding(check.area, check.name, Status.BROKEN, late)])
    ]


class _Answer(NamedTuple):
    """What a program has said; `failure` is None if it ended well."""

    text: str
    failure: str | None


def _asked(*command: str) -> _Answer:
    try:
        done = subprocess.run(  # nosec B603  # no shell; the programs of this module
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_S,
        )
    except subprocess.TimeoutExpired:
        return _Answer("", f"it does not answer within {PROGRAM_S:g} s")
    except OSError as error:
        return _Answer("", f"it does not start: {error.strerror}")
    said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    return _Answer(done.stdout.strip(), None if done.returncode == 0 else redact(said[-1]))


def _program(area: str, name: str, *arguments: str, cure: str) -> Finding:
    """A program that says its version; it may be beside Python's."""
    on_path = shutil.which(name)
    found = on_path or shutil.which(name, path=os.path.dirname(sys.executable))
    if found is None:
        return Finding(area, name, Status.MISSING, "not installed", cure)
    answer = _asked(found, *arguments)
    if answer.failure is not None:
        return Finding(area, name, Status.BROKEN, answer.failure, shlex.join((name, *arguments)))
    where = "" if on_path else f", at {found}, which is not on PATH"
    return Finding(area, name, Status.OK, answer.text.partition("\n")[0] + where)


# ------------------------------------------------------------------ Python and this package


def _python() -> Iterator[Finding]:
    version = f"{platform.python_version()} ({platform.python_implementation()})"
    where = f"{platform.system()} {platform.machine()}, {sys.executable}"
    yield Finding("Python", "python", Status.OK, f"{version}, {where}")
    yield Finding(
        "Python", "openenv", Status.OK, f"{openenv.__version__}, {Path(openenv.__file__).parent}"
    )
    try:
        importlib.metadata.version("openenv")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            "Python", "extras", Status.MISSING, "openenv runs from its sources", "pip install -e ."
        )
        return
    for extra, packages in _extras().items():
        absent = [one for one in packages if not _is_installed(one)]
        name = f"openenv[{extra}]"
        if absent:
            cure = f"pip install 'openenv[{extra}]'"
            yield Finding("Python", name, Status.MISSING, f"without {', '.join(absent)}", cure)
        else:
            there = ", ".join(f"{one} {importlib.metadata.version(one)}" for one in packages)
            yield Finding("Python", name, Status.OK, there)


def _extras() -> dict[str, list[str]]:
    """Of each extra, the packages that it asks for; `all` and those that ask for none left out."""
    extras: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("openenv") or ():
        package = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", line)
        if package and extra and extra[1] != "all":
            if "sys_platform == 'linux'" in line and sys.platform != "linux":
                continue
            extras.setdefault(extra[1], []).append(package[0])
    return dict(sorted(extras.items()))


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


# ------------------------------------------------------------------ where environments run


def _podman() -> Iterator[Finding]:
    yield _program(
        "Containers", "podman", "info", "--format", "{{.Version.Version}}", cure=INSTALL_ENGINE
    )


def _docker() -> Iterator[Finding]:
    if shutil.which("docker") is None:
        cure = "see https://docs.docker.com/engine/install"
        yield Finding("Containers", "docker", Status.MISSING, "not installed", cure)
        return
    answer = _asked("docker", "version", "--format", "{{.Server.Version}}")
    if answer.failure is None:
        yield Finding("Containers", "docker", Status.OK, answer.text)
    else:
        cure = "sudo systemctl start docker"
        yield Finding("Containers", "docker", Status.BROKEN, answer.failure, cure)


def _sandboxes() -> Iterator[Finding]:
    from openenv.sandbox.kinds import kinds_of_this_machine

    for offer in kinds_of_this_machine():
        if offer.why_not is None:
            guarantee = f"guarantees: {offer.guarantee}"
            yield Finding("Sandboxes", offer.kind, Status.OK, guarantee)
            continue
        # It is there, and a sandbox of it does not start or run; else it, or its kernel, is not.
        is_broken = "here: " in offer.why_not
        detail, _, cure = offer.why_not.partition("; ")
        command = re.match(r"(?:sudo )?(?:apt-get|pip) install [\w.-]+", cure)
        yield Finding(
            "Sandboxes",
            offer.kind,
            Status.BROKEN if is_broken else Status.MISSING,
            detail if command else offer.why_not,
            command[0] if command else None,
        )

    from openenv.sandbox.cgroups import why_no_group

    why_not = why_no_group()
    told = "the kernel keeps the limits of a sandbox's memory" if why_not is None else why_not
    status = Status.OK if why_not is None else Status.MISSING
    yield Finding("Sandboxes", "cgroups", status, told)


def _gpus() -> Iterator[Finding]:
    if shutil.which("nvidia-smi") is None:
        yield Finding("GPUs", "nvidia", Status.MISSING, "no nvidia-smi; only training wants one")
        return
    fields = "--query-gpu=name,memory.total,driver_version"
    answer = _asked("nvidia-smi", fields, "--format=csv,noheader")
    if answer.failure is not None or not answer.text:
        detail = answer.failure or "nvidia-smi names no GPU"
        yield Finding("GPUs", "nvidia", Status.BROKEN, detail, "nvidia-smi")
        return
    for number, line in enumerate(answer.text.splitlines()):
        name, memory, driver = [one.strip() for one in f"{line},,".split(",")[:3]]
        yield Finding("GPUs", f"nvidia {number}", Status.OK, f"{name}, {memory}, driver {driver}")


def _kubernetes() -> Iterator[Finding]:
    if importlib.util.find_spec("kubernetes") is None:
        cure = "pip install 'openenv[kubernetes]'"
        detail = "its Python client is not installed"
        yield Finding("Clusters", "kubernetes", Status.MISSING, detail, cure)
        return
    from openenv.errors import ProviderError
    from openenv.providers._clusters import Cluster, ClusterError

    try:
        cluster = Cluster()
    except ProviderError:
        cure = "export KUBECONFIG=FILE"
        yield Finding("Clusters", "kubernetes", Status.MISSING, "no cluster is known", cure)
        return
    try:
        cluster.find("Pod", "default", "openenv-doctor")  # there is none
    except ClusterError as error:
        if error.status != 403:  # of somebody who may not look into this namespace
            detail = redact(str(error))
            yield Finding("Clusters", "kubernetes", Status.BROKEN, detail, "kubectl cluster-info")
            return
    yield Finding("Clusters", "kubernetes", Status.OK, "the API server answers")


def _ray() -> Iterator[Finding]:
    if not _is_installed("ray"):
        cure = "pip install 'openenv[ray]'"
        yield Finding("Clusters", "ray", Status.MISSING, "not installed", cure)
        return
    address = os.environ.get("RAY_ADDRESS")
    where = "one is started when it is needed" if address is None else f"cluster {address}"
    yield Finding("Clusters", "ray", Status.OK, f"{importlib.metadata.version('ray')}, {where}")


# ------------------------------------------------------------------ the Hub, and programs


def _hub() -> Iterator[Finding]:
    if importlib.util.find_spec("huggingface_hub") is None:
        cure = "pip install 'openenv[hf]'"
        yield Finding("Hub", "login", Status.MISSING, "huggingface_hub is not installed", cure)
        return
    from huggingface_hub import constants, get_token
    from huggingface_hub.utils import build_hf_headers, get_session

    token = get_token()
    if token is None:
        yield Finding("Hub", "login", Status.MISSING, "there is no token", "hf auth login")
        return
    where = f"{constants.ENDPOINT}/api/whoami-v2"
    try:
        if constants.HF_HUB_OFFLINE:
            raise ConnectionError("HF_HUB_OFFLINE is set")
        answer = get_session().get(where, headers=build_hf_headers(token=token), timeout=NETWORK_S)
    except Exception as error:  # of whichever HTTP library it has
        why = redact(f"{type(error).__name__}: {error}".removesuffix(": "))
        detail = f"there is a token; {constants.ENDPOINT} cannot be reached ({why})"
        yield Finding("Hub", "login", Status.MISSING, detail)
        return
    if answer.status_code == 200:
        yield Finding("Hub", "login", Status.OK, f"as {answer.json().get('name')}")
    else:
        detail = f"{constants.ENDPOINT} refuses the token (status {answer.status_code})"
        yield Finding("Hub", "login", Status.BROKEN, detail, "hf auth login")


def _programs() -> Iterator[Finding]:
    for name, (purpose, cure) in PROGRAMS.items():
        found = _program("Programs", name, "--version", cure=cure)
        if found.status is Status.MISSING:
            found = found._replace(detail=f"not installed; for {purpose}")
        yield found


# ------------------------------------------------------------------ room


def _room() -> Iterator[Finding]:
    yield from (_files(), _disk(), _memory(), _port())


def _files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_few = soft != resource.RLIM_INFINITY and soft < FEW_FILES
    if not is_few:
        shown = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        return Finding("Room", "open files", Status.OK, shown)
    more = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    detail = f"{soft:,} are too few for thousands of sessions"
    return Finding("Room", "open files", Status.MISSING, detail, f"ulimit -n {more}")


def _disk() -> Finding:
    free = shutil.disk_usage(tempfile.gettempdir()).free / 1e9
    detail = f"{free:,.1f} GB free in {tempfile.gettempdir()}"
    if free >= LITTLE_DISK_GB:
        return Finding("Room", "disk", Status.OK, detail)
    cure = "export TMPDIR=DIRECTORY"
    return Finding("Room", "disk", Status.MISSING, f"{detail}: images may not fit", cure)


def _memory() -> Finding:
    free = _available_gb()
    if free is None:
        return Finding("Room", "memory", Status.OK, "it cannot be told how much is free")
    detail = f"{free:,.1f} GB free"
    if free >= LITTLE_MEMORY_GB:
        return Finding("Room", "memory", Status.OK, detail)
    return Finding("Room", "memory", Status.MISSING, f"{detail}: environments may be killed")


def _available_gb() -> float | None:
    """What is free on this machine, or left to its container if that is less (cgroup v2)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1e3
    except (OSError, StopIteration, ValueError):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, most - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        pass
    return free / 1e9


def _port() -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            cure = "openenv serve --port 0"
            return Finding("Room", f"port {PORT}", Status.MISSING, "it is in use", cure)
    return Finding("Room", f"port {PORT}", Status.OK, "free")


CHECKS = (
    Check("Python", "packages", _python),
    Check("Containers", "podman", _podman),
    Check("Containers", "docker", _docker),
    Check("Sandboxes", "sandboxes", _sandboxes),
    Check("GPUs", "nvidia", _gpus),
    Check("Hub", "login", _hub),
    Check("Clusters", "kubernetes", _kubernetes),
    Check("Clusters", "ray", _ray),
    Check("Programs", "programs", _programs),
    Check("Room", "room", _room),
)
