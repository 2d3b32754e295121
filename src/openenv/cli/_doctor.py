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
    """A capability of this machine, present or missing."""

    area: str  # the panel under which the capability is listed
    name: str
    status: FindingStatus  # `missing` if not installed, `broken` if installed and not working
    detail: str  # the version, or the problem
    cure: str | None = None  # a command that solves the problem, if there is one


def _ok(name: str, detail: str) -> DoctorFinding:
    return DoctorFinding("", name, FindingStatus.OK, detail)


def _missing(name: str, detail: str, cure: str | None = None) -> DoctorFinding:
    return DoctorFinding("", name, FindingStatus.MISSING, detail, cure)


def _broken(name: str, detail: str, cure: str | None = None) -> DoctorFinding:
    return DoctorFinding("", name, FindingStatus.BROKEN, detail, cure)


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
            results[check] = [_broken(check.name, why)]

    # Daemons, so that a hanging check does not block the program's exit.
    threads = [threading.Thread(target=run, args=[check], daemon=True) for check in CHECKS]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + CHECK_S
    for done, thread in enumerate(threads, 1):
        thread.join(max(0.0, ends - time.monotonic()))
        on_done(done)
    late = f"no answer within {CHECK_S:g} s"
    return [
        finding._replace(area=check.area)
        for check in CHECKS
        for finding in results.get(check, [_broken(check.name, late)])
    ]


def _run_program(*command: str) -> tuple[str, str | None]:
    """Return a program's output, and a description of the failure or None."""
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
        return "", f"it does not answer within {PROGRAM_S:g} s"
    except OSError as error:
        return "", f"it does not start: {error.strerror}"
    said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    return done.stdout.strip(), None if done.returncode == 0 else redact(said[-1])


def _check_program(name: str, *arguments: str, cure: str) -> DoctorFinding:
    """Run a program that prints a version; look on PATH and beside Python."""
    on_path = shutil.which(name)
    found = on_path or shutil.which(name, path=os.path.dirname(sys.executable))
    if found is None:
        return _missing(name, "not installed", cure)
    text, failure = _run_program(found, *arguments)
    if failure is not None:
        return _broken(name, failure, shlex.join((name, *arguments)))
    where = "" if on_path else f", at {found}, which is not on PATH"
    return _ok(name, text.partition("\n")[0] + where)


# ------------------------------------------------------------------ Python and this package


def _python() -> Iterator[DoctorFinding]:
    version = f"{platform.python_version()} ({platform.python_implementation()})"
    yield _ok("python", f"{version}, {platform.system()} {platform.machine()}, {sys.executable}")
    yield _ok("openenv", f"{openenv.__version__}, {Path(openenv.__file__).parent}")
    if _version("openenv") is None:
        yield _missing("extras", "openenv runs from its sources", "pip install -e .")
        return
    for extra, packages in _extras().items():
        name = f"openenv[{extra}]"
        versions = {one: _version(one) for one in packages}
        absent = [one for one, version in versions.items() if version is None]
        if absent:
            yield _missing(name, f"without {', '.join(absent)}", f"pip install '{name}'")
        else:
            yield _ok(name, ", ".join(f"{one} {version}" for one, version in versions.items()))


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


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# ------------------------------------------------------------------ where environments run


def _podman() -> Iterator[DoctorFinding]:
    yield _check_program("podman", "info", "--format", "{{.Version.Version}}", cure=INSTALL_ENGINE)


def _docker() -> Iterator[DoctorFinding]:
    if shutil.which("docker") is None:
        yield _missing("docker", "not installed", "see https://docs.docker.com/engine/install")
        return
    text, failure = _run_program("docker", "version", "--format", "{{.Server.Version}}")
    if failure is None:
        yield _ok("docker", text)
    else:
        yield _broken("docker", failure, "sudo systemctl start docker")


def _sandboxes() -> Iterator[DoctorFinding]:
    from openenv.sandbox.cgroups import why_no_group
    from openenv.sandbox.kinds import kinds_of_this_machine

    for offer in kinds_of_this_machine():
        if offer.why_not is None:
            yield _ok(offer.kind, f"guarantees: {offer.guarantee}")
            continue
        # "here: " marks an installed sandbox that fails; otherwise program or kernel lack support.
        finding = _broken if "here: " in offer.why_not else _missing
        detail, _, cure = offer.why_not.partition("; ")
        command = re.match(r"(?:sudo )?(?:apt-get|pip) install [\w.-]+", cure)
        if command:
            yield finding(offer.kind, detail, command[0])
        else:
            yield finding(offer.kind, offer.why_not)
    why_not = why_no_group()
    if why_not is None:
        yield _ok("cgroups", "the kernel keeps the limits of a sandbox's memory")
    else:
        yield _missing("cgroups", why_not)


def _gpus() -> Iterator[DoctorFinding]:
    if shutil.which("nvidia-smi") is None:
        yield _missing("nvidia", "no nvidia-smi; only training wants one")
        return
    fields = "--query-gpu=name,memory.total,driver_version"
    text, failure = _run_program("nvidia-smi", fields, "--format=csv,noheader")
    if failure is not None or not text:
        yield _broken("nvidia", failure or "nvidia-smi names no GPU", "nvidia-smi")
        return
    for number, line in enumerate(text.splitlines()):
        name, memory, driver = [one.strip() for one in f"{line},,".split(",")[:3]]
        yield _ok(f"nvidia {number}", f"{name}, {memory}, driver {driver}")


def _kubernetes() -> Iterator[DoctorFinding]:
    name = "kubernetes"
    if importlib.util.find_spec(name) is None:
        cure = "pip install 'openenv[kubernetes]'"
        yield _missing(name, "its Python client is not installed", cure)
        return
    from openenv.errors import ProviderError
    from openenv.providers._clusters import Cluster, ClusterError

    try:
        cluster = Cluster()
    except ProviderError:
        yield _missing(name, "no cluster is known", "export KUBECONFIG=FILE")
        return
    try:
        cluster.find("Pod", "default", "openenv-doctor")  # no such pod exists
    except ClusterError as error:
        if error.status != 403:  # 403: the user may not read this namespace
            yield _broken(name, redact(str(error)), "kubectl cluster-info")
            return
    yield _ok(name, "the API server answers")


def _ray() -> Iterator[DoctorFinding]:
    version = _version("ray")
    if version is None:
        yield _missing("ray", "not installed", "pip install 'openenv[ray]'")
        return
    address = os.environ.get("RAY_ADDRESS")
    where = "one is started when it is needed" if address is None else f"cluster {address}"
    yield _ok("ray", f"{version}, {where}")


# ------------------------------------------------------------------ the Hub, and programs


def _hub() -> Iterator[DoctorFinding]:
    if importlib.util.find_spec("huggingface_hub") is None:
        cure = "pip install 'openenv[hf]'"
        yield _missing("login", "huggingface_hub is not installed", cure)
        return
    from huggingface_hub import constants, get_token
    from huggingface_hub.utils import build_hf_headers, get_session

    token = get_token()
    if token is None:
        yield _missing("login", "there is no token", "hf auth login")
        return
    where = f"{constants.ENDPOINT}/api/whoami-v2"
    try:
        if constants.HF_HUB_OFFLINE:
            raise ConnectionError("HF_HUB_OFFLINE is set")
        answer = get_session().get(where, headers=build_hf_headers(token=token), timeout=NETWORK_S)
    except Exception as error:  # depends on the library's HTTP client
        why = redact(f"{type(error).__name__}: {error}".removesuffix(": "))
        detail = f"there is a token; {constants.ENDPOINT} cannot be reached ({why})"
        yield _missing("login", detail)
        return
    if answer.status_code == 200:
        yield _ok("login", f"as {answer.json().get('name')}")
    else:
        detail = f"{constants.ENDPOINT} refuses the token (status {answer.status_code})"
        yield _broken("login", detail, "hf auth login")


def _programs() -> Iterator[DoctorFinding]:
    for name, (purpose, cure) in PROGRAMS.items():
        found = _check_program(name, "--version", cure=cure)
        if found.status is FindingStatus.MISSING:
            found = found._replace(detail=f"not installed; for {purpose}")
        yield found


# ------------------------------------------------------------------ room


def _room() -> Iterator[DoctorFinding]:
    yield from (_files(), _disk(), _memory(), _port())


def _files() -> DoctorFinding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _ok("open files", "no limit")
    if soft >= FEW_FILES:
        return _ok("open files", f"{soft:,}")
    more = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    detail = f"{soft:,} are too few for thousands of sessions"
    return _missing("open files", detail, f"ulimit -n {more}")


def _disk() -> DoctorFinding:
    free = shutil.disk_usage(tempfile.gettempdir()).free / 1e9
    detail = f"{free:,.1f} GB free in {tempfile.gettempdir()}"
    if free >= LITTLE_DISK_GB:
        return _ok("disk", detail)
    return _missing("disk", f"{detail}: images may not fit", "export TMPDIR=DIRECTORY")


def _memory() -> DoctorFinding:
    free = _available_gb()
    if free is None:
        return _ok("memory", "it cannot be told how much is free")
    detail = f"{free:,.1f} GB free"
    if free >= LITTLE_MEMORY_GB:
        return _ok("memory", detail)
    return _missing("memory", f"{detail}: environments may be killed")


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
            return _missing(f"port {PORT}", "it is in use", "openenv serve --port 0")
    return _ok(f"port {PORT}", "free")


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
