"""The checks of `openenv doctor`: tests of what this machine can do."""

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

# Time limits of a check, of a program that prints its version, and of a network request.
CHECK_S = 12.0
PROGRAM_S = 8.0
NETWORK_S = 3.0

FEW_FILES = 4096
LITTLE_DISK_GB = 2.0
LITTLE_MEMORY_GB = 1.0
PORT = 8000

INSTALL_ENGINE = "sudo apt-get install podman"
PROGRAMS = {  # purpose, and installation command
    "uv": ("isolated installation of environments", "pip install uv"),
    "git": ("catalogs, and environments in repositories", "sudo apt-get install git"),
    "node": ("MCP servers and clients in TypeScript", "sudo apt-get install nodejs npm"),
}


class FindingStatus(str, Enum):
    """The outcome of a check."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


class DoctorFinding(NamedTuple):
    """A capability of this machine, present or missing.

    Attributes:
        area: The group of the capability.
        name: The capability.
        status: `missing` if not installed, `broken` if installed and not working.
        detail: The version, or the problem.
        cure: A command that solves the problem, if there is one.
    """

    area: str
    name: str
    status: FindingStatus
    detail: str
    cure: str | None = None


def _ok(area: str, name: str, detail: str) -> DoctorFinding:
    return DoctorFinding(area, name, FindingStatus.OK, detail)


def _missing(area: str, name: str, detail: str, cure: str | None = None) -> DoctorFinding:
    return DoctorFinding(area, name, FindingStatus.MISSING, detail, cure)


def _broken(area: str, name: str, detail: str, cure: str | None = None) -> DoctorFinding:
    return DoctorFinding(area, name, FindingStatus.BROKEN, detail, cure)


class DoctorCheck(NamedTuple):
    """A check of an area or of a single capability."""

    area: str
    name: str
    look: Callable[[], Iterator[DoctorFinding]]


def run_checks(on_done: Callable[[int], None] = lambda done: None) -> list[DoctorFinding]:
    """Run all checks concurrently, each for at most `CHECK_S` seconds.

    Args:
        on_done: Called with the number of finished checks.
    """
    results: dict[DoctorCheck, list[DoctorFinding]] = {}

    def run(check: DoctorCheck) -> None:
        try:
            results[check] = list(check.look())
        except Exception as error:
            why = redact(f"it cannot be told: {type(error).__name__}: {error}")
            results[check] = [_broken(check.area, check.name, why)]

    threads = [  # daemons, so that a hanging check does not block the program's exit
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
        for finding in results.get(check, [_broken(check.area, check.name, late)])
    ]


class _ProgramOutput(NamedTuple):
    """The output of a program; `failure` is None on success."""

    text: str
    failure: str | None


def _run_program(*command: str) -> _ProgramOutput:
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
        return _ProgramOutput("", f"it does not answer within {PROGRAM_S:g} s")
    except OSError as error:
        return _ProgramOutput("", f"it does not start: {error.strerror}")
    said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    return _ProgramOutput(done.stdout.strip(), None if done.returncode == 0 else redact(said[-1]))


def _check_program(area: str, name: str, *arguments: str, cure: str) -> DoctorFinding:
    """Run a program that prints a version; look on PATH and beside Python."""
    on_path = shutil.which(name)
    found = on_path or shutil.which(name, path=os.path.dirname(sys.executable))
    if found is None:
        return _missing(area, name, "not installed", cure)
    answer = _run_program(found, *arguments)
    if answer.failure is not None:
        return _broken(area, name, answer.failure, shlex.join((name, *arguments)))
    where = "" if on_path else f", at {found}, which is not on PATH"
    return _ok(area, name, answer.text.partition("\n")[0] + where)


# ------------------------------------------------------------------ Python and this package


def _python() -> Iterator[DoctorFinding]:
    version = f"{platform.python_version()} ({platform.python_implementation()})"
    where = f"{platform.system()} {platform.machine()}, {sys.executable}"
    yield _ok("Python", "python", f"{version}, {where}")
    yield _ok("Python", "openenv", f"{openenv.__version__}, {Path(openenv.__file__).parent}")
    try:
        importlib.metadata.version("openenv")
    except importlib.metadata.PackageNotFoundError:
        yield _missing("Python", "extras", "openenv runs from its sources", "pip install -e .")
        return
    for extra, packages in _extras().items():
        absent = [one for one in packages if not _is_installed(one)]
        name = f"openenv[{extra}]"
        if absent:
            cure = f"pip install 'openenv[{extra}]'"
            yield _missing("Python", name, f"without {', '.join(absent)}", cure)
        else:
            there = ", ".join(f"{one} {importlib.metadata.version(one)}" for one in packages)
            yield _ok("Python", name, there)


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra, without `all` and empty extras."""
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


def _podman() -> Iterator[DoctorFinding]:
    yield _check_program(
        "Containers", "podman", "info", "--format", "{{.Version.Version}}", cure=INSTALL_ENGINE
    )


def _docker() -> Iterator[DoctorFinding]:
    if shutil.which("docker") is None:
        cure = "see https://docs.docker.com/engine/install"
        yield _missing("Containers", "docker", "not installed", cure)
        return
    answer = _run_program("docker", "version", "--format", "{{.Server.Version}}")
    if answer.failure is None:
        yield _ok("Containers", "docker", answer.text)
    else:
        cure = "sudo systemctl start docker"
        yield _broken("Containers", "docker", answer.failure, cure)


def _sandboxes() -> Iterator[DoctorFinding]:
    from openenv.sandbox.kinds import kinds_of_this_machine

    for offer in kinds_of_this_machine():
        if offer.why_not is None:
            guarantee = f"guarantees: {offer.guarantee}"
            yield _ok("Sandboxes", offer.kind, guarantee)
            continue
        # "here: " marks an installed sandbox that fails; otherwise program or kernel lack support.
        is_broken = "here: " in offer.why_not
        detail, _, cure = offer.why_not.partition("; ")
        command = re.match(r"(?:sudo )?(?:apt-get|pip) install [\w.-]+", cure)
        yield DoctorFinding(
            "Sandboxes",
            offer.kind,
            FindingStatus.BROKEN if is_broken else FindingStatus.MISSING,
            detail if command else offer.why_not,
            command[0] if command else None,
        )

    from openenv.sandbox.cgroups import why_no_group

    why_not = why_no_group()
    told = "the kernel keeps the limits of a sandbox's memory" if why_not is None else why_not
    status = FindingStatus.OK if why_not is None else FindingStatus.MISSING
    yield DoctorFinding("Sandboxes", "cgroups", status, told)


def _gpus() -> Iterator[DoctorFinding]:
    if shutil.which("nvidia-smi") is None:
        yield _missing("GPUs", "nvidia", "no nvidia-smi; only training wants one")
        return
    fields = "--query-gpu=name,memory.total,driver_version"
    answer = _run_program("nvidia-smi", fields, "--format=csv,noheader")
    if answer.failure is not None or not answer.text:
        detail = answer.failure or "nvidia-smi names no GPU"
        yield _broken("GPUs", "nvidia", detail, "nvidia-smi")
        return
    for number, line in enumerate(answer.text.splitlines()):
        name, memory, driver = [one.strip() for one in f"{line},,".split(",")[:3]]
        yield _ok("GPUs", f"nvidia {number}", f"{name}, {memory}, driver {driver}")


def _kubernetes() -> Iterator[DoctorFinding]:
    if importlib.util.find_spec("kubernetes") is None:
        cure = "pip install 'openenv[kubernetes]'"
        detail = "its Python client is not installed"
        yield _missing("Clusters", "kubernetes", detail, cure)
        return
    from openenv.errors import ProviderError
    from openenv.providers._clusters import Cluster, ClusterError

    try:
        cluster = Cluster()
    except ProviderError:
        cure = "export KUBECONFIG=FILE"
        yield _missing("Clusters", "kubernetes", "no cluster is known", cure)
        return
    try:
        cluster.find("Pod", "default", "openenv-doctor")  # there is none
    except ClusterError as error:
        if error.status != 403:  # the user may not read this namespace
            detail = redact(str(error))
            yield _broken("Clusters", "kubernetes", detail, "kubectl cluster-info")
            return
    yield _ok("Clusters", "kubernetes", "the API server answers")


def _ray() -> Iterator[DoctorFinding]:
    if not _is_installed("ray"):
        cure = "pip install 'openenv[ray]'"
        yield _missing("Clusters", "ray", "not installed", cure)
        return
    address = os.environ.get("RAY_ADDRESS")
    where = "one is started when it is needed" if address is None else f"cluster {address}"
    yield _ok("Clusters", "ray", f"{importlib.metadata.version('ray')}, {where}")


# ------------------------------------------------------------------ the Hub, and programs


def _hub() -> Iterator[DoctorFinding]:
    if importlib.util.find_spec("huggingface_hub") is None:
        cure = "pip install 'openenv[hf]'"
        yield _missing("Hub", "login", "huggingface_hub is not installed", cure)
        return
    from huggingface_hub import constants, get_token
    from huggingface_hub.utils import build_hf_headers, get_session

    token = get_token()
    if token is None:
        yield _missing("Hub", "login", "there is no token", "hf auth login")
        return
    where = f"{constants.ENDPOINT}/api/whoami-v2"
    try:
        if constants.HF_HUB_OFFLINE:
            raise ConnectionError("HF_HUB_OFFLINE is set")
        answer = get_session().get(where, headers=build_hf_headers(token=token), timeout=NETWORK_S)
    except Exception as error:  # depends on the library's HTTP client
        why = redact(f"{type(error).__name__}: {error}".removesuffix(": "))
        detail = f"there is a token; {constants.ENDPOINT} cannot be reached ({why})"
        yield _missing("Hub", "login", detail)
        return
    if answer.status_code == 200:
        yield _ok("Hub", "login", f"as {answer.json().get('name')}")
    else:
        detail = f"{constants.ENDPOINT} refuses the token (status {answer.status_code})"
        yield _broken("Hub", "login", detail, "hf auth login")


def _programs() -> Iterator[DoctorFinding]:
    for name, (purpose, cure) in PROGRAMS.items():
        found = _check_program("Programs", name, "--version", cure=cure)
        if found.status is FindingStatus.MISSING:
            found = found._replace(detail=f"not installed; for {purpose}")
        yield found


# ------------------------------------------------------------------ room


def _room() -> Iterator[DoctorFinding]:
    yield from (_files(), _disk(), _memory(), _port())


def _files() -> DoctorFinding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_few = soft != resource.RLIM_INFINITY and soft < FEW_FILES
    if not is_few:
        shown = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        return _ok("Room", "open files", shown)
    more = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    detail = f"{soft:,} are too few for thousands of sessions"
    return _missing("Room", "open files", detail, f"ulimit -n {more}")


def _disk() -> DoctorFinding:
    free = shutil.disk_usage(tempfile.gettempdir()).free / 1e9
    detail = f"{free:,.1f} GB free in {tempfile.gettempdir()}"
    if free >= LITTLE_DISK_GB:
        return _ok("Room", "disk", detail)
    cure = "export TMPDIR=DIRECTORY"
    return _missing("Room", "disk", f"{detail}: images may not fit", cure)


def _memory() -> DoctorFinding:
    free = _available_gb()
    if free is None:
        return _ok("Room", "memory", "it cannot be told how much is free")
    detail = f"{free:,.1f} GB free"
    if free >= LITTLE_MEMORY_GB:
        return _ok("Room", "memory", detail)
    return _missing("Room", "memory", f"{detail}: environments may be killed")


def _available_gb() -> float | None:
    """Return the free memory of the machine, or of the container if less (cgroup v2)."""
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


def _port() -> DoctorFinding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            cure = "openenv serve --port 0"
            return _missing("Room", f"port {PORT}", "it is in use", cure)
    return _ok("Room", f"port {PORT}", "free")


CHECKS = (
    DoctorCheck("Python", "packages", _python),
    DoctorCheck("Containers", "podman", _podman),
    DoctorCheck("Containers", "docker", _docker),
    DoctorCheck("Sandboxes", "sandboxes", _sandboxes),
    DoctorCheck("GPUs", "nvidia", _gpus),
    DoctorCheck("Hub", "login", _hub),
    DoctorCheck("Clusters", "kubernetes", _kubernetes),
    DoctorCheck("Clusters", "ray", _ray),
    DoctorCheck("Programs", "programs", _programs),
    DoctorCheck("Room", "room", _room),
)
