"""Servers in processes of this machine, for isolation without a container engine.

A server runs in its own session and process group, with its own temporary directory and limits. The
server ends when the provider stops it, and when the process that started it ends for any reason: a
watcher in the server's group reads a pipe whose other end only that process holds. Processes that
the server started end with it, unless they left the group (`setsid`).

Separate processes keep environments from disturbing each other and their caller. They are no
sandbox against hostile code: a server runs as the same user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from openenv._internal.children import ChildProcess, absolute_path, fork
from openenv._internal.forkserver import ForkRequest
from openenv._internal.net.peers import is_loopback
from openenv._internal.redaction import redact, register_secret, register_secrets_of
from openenv.errors import ProviderError, ProviderExited
from openenv.manifest.directories import absolute_target
from openenv.providers._readiness import LOG_TAIL_LINES, wait_until
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey, RuntimeProvider
from openenv.providers.options import key_file, key_of
from openenv.providers.owners import stat_fields
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    MANAGED,
    Executed,
    LaunchRequest,
    Server,
    ServerProvider,
    last_lines,
)
from openenv.settings import without_keys

__all__ = [
    "HostProvider",
    "HostServer",
    "ProcessLimits",
    "ProcessProvider",
    "ServerProcess",
    "target_of_image",
]

STOP_GRACE_S = 10.0
GROUP_END_S = 1.0
PORT_FILE = "port"
KEY_FILE = "key"
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}

# Leaves a watcher in the server's group. The watcher is orphaned, so that a server that waits for
# its children never waits for the watcher. Standard input is the lifeline.
_WATCHER = """
exec 3<&0 </dev/null
( (
    exec >/dev/null 2>&1
    read -r _ <&3
    kill -s TERM $server
    tenths=150
    while kill -0 $server && ! grep -q '^State:.Z' /proc/$server/status && [ $tenths -gt 0 ]; do
        sleep 0.1
        tenths=$((tenths - 1))
    done
    rm -rf "$directory"
    kill -s KILL -- -$server
) & )
exec 3<&-
"""
# A forked server runs `_WATCH`; `_LAUNCH` turns into the server, `$@`.
_WATCH = f"directory=$1 server=$2 {_WATCHER}"
_LAUNCH = f'directory=$1 server=$$; shift {_WATCHER} exec "$@"'
SERVER = "openenv.server.run"


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of a server process. None keeps the limit of this process.

    Attributes:
        memory_bytes: Maximum address space (RLIMIT_AS).
        cpu_seconds: Maximum CPU time over the whole lifetime (RLIMIT_CPU).
        open_files: Maximum number of file descriptors (RLIMIT_NOFILE).
        file_size_bytes: Maximum size of a file that is written (RLIMIT_FSIZE).
        core_bytes: Maximum size of a core dump (RLIMIT_CORE); 0 by default.

    Example:
        >>> from openenv import ProcessLimits, ProcessProvider
        >>> limits = ProcessLimits(memory_bytes=2 * 1024**3, cpu_seconds=600)
        >>> provider = ProcessProvider("echo_env", limits=limits)
    """

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None
    file_size_bytes: int | None = None
    core_bytes: int | None = 0

    def to_arguments(self) -> list[str]:
        """Return the limits as arguments of ``python -m openenv.server.run``."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return [f"--limit={name}={value}" for name, value in given.items()]


class ServerProcess:
    """A server in a separate process group, with a log and a directory.

    Args:
        command: The program and the arguments. The program runs in `directory`.
        env_vars: Environment variables on top of this process's.
        directory: Working directory, removed at the end; by default a new temporary one.
        api_key: Key that the server must require, passed in a file that `forget_key` removes.
        port: The server's port; None if the server writes the number to the file ``port``.
        keeps_key_file: Whether child processes that the server starts later read the key file.

    Attributes:
        log_path: The file with the output, which is removed when the server stops.

    Raises:
        ProviderError: The server could not be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env_vars: Mapping[str, str] | None = None,
        directory: Path | None = None,
        api_key: str | None = None,
        port: int | None = None,
        keeps_key_file: bool = False,
    ) -> None:
        register_secrets_of(env_vars or {})
        register_secret(api_key or "")
        self.directory = directory or Path(tempfile.mkdtemp(prefix="openenv-"))
        self.log_path = self.directory / "server.log"
        self.port = port
        self.keeps_key_file = keeps_key_file
        self._kept_log: str | None = None
        self._owner = os.getpid()
        watched, lifeline = os.pipe()
        try:
            (self.directory / "tmp").mkdir()
            environ = _environment(self.directory / "tmp", env_vars or {})
            if api_key is not None:
                path = self.directory / KEY_FILE
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(key_file(api_key))
                environ["OPENENV_API_KEY_FILE"] = str(path)
            self._environ = environ
            with self.log_path.open("wb") as log:
                self._process = self._start(list(command), environ, watched, log.fileno())
        except OSError as error:
            os.close(lifeline)
            shutil.rmtree(self.directory, ignore_errors=True)
            raise ProviderError(f"{command[0]} could not be started: {error}") from error
        finally:
            os.close(watched)
        _lifelines.add(lifeline)
        self._abandon = weakref.finalize(self, _abandon, self._process, lifeline)

    def _start(
        self, command: list[str], environ: Mapping[str, str], watched: int, log: int
    ) -> ChildProcess:
        directory = str(self.directory)
        if command[:3] == [sys.executable, "-m", SERVER]:
            watch = ["sh", "-c", _WATCH, "openenv", directory]
            request = ForkRequest(f"{SERVER}:main", command[3:], environ, directory, watch)
            forked = fork(request, (watched, log, log), is_first_worth_it=False)
            if forked is not None:
                return forked
        return subprocess.Popen(  # nosec B603, B607  # what the caller wants served; sh is POSIX's
            ["sh", "-c", _LAUNCH, "openenv", directory, *command],
            env=environ,
            cwd=directory,
            stdin=watched,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def forget_key(self) -> None:
        """Remove the key file; call it once the server has read the file."""
        (self.directory / KEY_FILE).unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        """The id of the process and of the process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` has been called."""
        return self._kept_log is not None

    def logs(self, lines: int | None = None) -> str:
        """Return the output, or its last `lines` lines. Works after a stop, too."""
        text = self._read("server.log") if self._kept_log is None else self._kept_log
        return last_lines(text, lines)

    def _read(self, name: str) -> str:
        try:
            return (self.directory / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def wait_for_port(self, timeout_s: float) -> int:
        """Wait until the server has written its port number to the file ``port``.

        Raises:
            ProviderExited: The process ended first.
            ProviderTimeout: The server reported no port within `timeout_s` seconds.
        """
        port = ""

        def has_reported() -> bool:
            nonlocal port
            port = self._read(PORT_FILE)
            return bool(port)

        what = "report the port that it listens on"
        wait_until(has_reported, timeout_s, what, self.check_running, self.logs)
        return int(port)

    def execute(self, command: Sequence[str], timeout_s: float) -> Executed:
        """Run a command in the server's directory, with the server's environment variables.

        Processes that the command started are killed when the command ends.

        Raises:
            ProviderError: The command could not be run, or took longer than `timeout_s` seconds.
        """
        try:
            running = subprocess.Popen(  # nosec B603  # what the caller wants run; no shell
                list(command),
                env=self._environ,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ProviderError(f"{command[0]} could not be run: {error}") from error
        with running:
            try:
                stdout, stderr = running.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise ProviderError(f"{command[0]} took longer than {timeout_s:g} s") from None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(running.pid, signal.SIGKILL)
        return Executed(
            running.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace")
        )

    def check_running(self) -> None:
        """Raise `ProviderExited` if the process has ended."""
        code = self.exit_code
        if code is not None:
            how = f"exit code {code}" if code >= 0 else f"{signal.strsignal(-code)}, {code}"
            raise ProviderExited(
                f"the server process has ended ({how})",
                exit_code=code,
                logs=redact(self.logs(LOG_TAIL_LINES)),
            )

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End the whole process group, with SIGTERM first, and remove the directory."""
        if self.is_stopped or self._owner != os.getpid():
            return  # it has been stopped, or this is a forked child's copy
        try:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        finally:
            # The watcher is in the group, so the group's id cannot have been reused.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._kept_log = self.logs()
            self._abandon()
            self._process.wait()
            deadline = time.monotonic() + GROUP_END_S
            while _is_running(self.pid) and time.monotonic() < deadline:
                time.sleep(0.005)
            shutil.rmtree(self.directory, ignore_errors=True)


def _is_running(group: int) -> bool:
    """Return whether any process of a group is running, zombies aside.

    The watcher's parent is init. Process 1 of a container may reap its children late, or never.
    """
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # not Linux
        return True
    for name in processes:
        with contextlib.suppress(OSError, ValueError):  # the process has ended
            state, _parent, its_group, *_rest = stat_fields(name)
            if its_group == str(group) and state not in ("Z", "X"):
                return True
    return False


def _environment(scratch: Path, env_vars: Mapping[str, str]) -> dict[str, str]:
    # A key of this program is for servers that others have started, not for this one.
    environment = {**without_keys(os.environ), "TMPDIR": str(scratch), **env_vars}
    if path := absolute_path(environment):
        environment["PYTHONPATH"] = path
    return environment


_lifelines: set[int] = set()


def _abandon(process: ChildProcess, lifeline: int) -> None:
    """Close a server's lifeline. The watcher then ends the server, with SIGTERM first."""
    if lifeline in _lifelines:
        _lifelines.discard(lifeline)
        os.close(lifeline)
    if isinstance(process, subprocess.Popen) and process.poll() is None:
        with contextlib.suppress(RuntimeError):  # the interpreter is about to end
            threading.Thread(target=process.wait, name="openenv-reaper", daemon=True).start()


def _drop_lifelines() -> None:
    """Close the lifelines in a forked child, since the servers belong to the parent."""
    for lifeline in _lifelines:
        os.close(lifeline)
    _lifelines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_lifelines)


class HostServer(Server):
    """A server in a process of this machine.

    Attributes:
        process: The server's process.
        pid: The id of the process.
    """

    def __init__(
        self, process: ServerProcess, url: str, key: str | None, ready_timeout_s: float
    ) -> None:
        super().__init__(url, f"process {process.pid}", key)
        self.process = process
        self._ready_timeout_s = ready_timeout_s

    @property
    def pid(self) -> int:
        return self.process.pid

    def check_running(self) -> None:
        if not self.process.is_stopped:
            self.process.check_running()

    def logs(self, lines: int | None = None) -> str:
        return self.process.logs(lines)

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        return self.process.execute(command, timeout_s)

    def wait_for_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the server answers; by default for the provider's `ready_timeout_s`."""
        super().wait_for_ready(self._ready_timeout_s if timeout_s is None else timeout_s)
        if not self.process.keeps_key_file:
            self.process.forget_key()

    def _stop(self) -> None:
        self.process.stop()


class HostProvider(ServerProvider, RuntimeProvider):
    """Runs servers as processes of this machine.

    Args:
        host: Address that the servers listen on.
        env_vars: Environment variables of each server.
        ready_timeout_s: Maximum seconds for a server to get ready.
        api_key: Key that each server requires. By default a fresh key for each start. None: no key.
            On a loopback address, ``/schema`` never requires a key.
    """

    capabilities: ClassVar[Capabilities] = replace(MANAGED, orphans="end at once")

    def __init__(
        self,
        *,
        host: str,
        env_vars: Mapping[str, str] | None,
        ready_timeout_s: float,
        api_key: str | FreshKey | None,
    ) -> None:
        super().__init__()
        self.host = host
        self.ready_timeout_s = ready_timeout_s
        self._env_vars = dict(env_vars or {})
        self._wanted_key = api_key
        self._starting: ServerProcess | None = None  # the process that a launch waits for

    @abstractmethod
    def _spawn(self, request: LaunchRequest, key: str | None) -> ServerProcess:
        """Start the server's process."""

    def _launch(self, request: LaunchRequest) -> HostServer:
        if request.image is not None:
            raise ProviderError(
                f"{type(self).__name__} runs no images; it serves the target that it was made for"
            )
        key = key_of(self._wanted_key)
        env_vars = {**self._env_vars, **request.env_vars}
        if key is not None and is_loopback(self.host):
            # Some trainers ask for the schema on their own, without the key.
            env_vars = {"OPENENV_PUBLIC_SCHEMA": "1", **env_vars}
        process = self._starting = self._spawn(replace(request, env_vars=env_vars), key)
        try:
            port = process.port or process.wait_for_port(self.ready_timeout_s)
            process.check_running()
        except BaseException:
            process.stop()
            raise
        finally:
            self._starting = None
        host = WILDCARD_HOSTS.get(self.host, self.host)
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return HostServer(process, url, key, self.ready_timeout_s)

    @property
    def pid(self) -> int | None:
        """The process id of the held server; None if no server runs."""
        server = self._running()
        return server.pid if isinstance(server, HostServer) else None

    @property
    def log_path(self) -> str | None:
        """The path of the held server's log; None if no server runs."""
        server = self._running()
        return str(server.process.log_path) if isinstance(server, HostServer) else None

    def start(
        self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        return self._hold(lambda: self.launch(port=port, env_vars=env_vars, **kwargs)).url

    def wait_for_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the server answers `/health`; by default for `ready_timeout_s` seconds."""
        self._held().wait_for_ready(self.ready_timeout_s if timeout_s is None else timeout_s)

    def stop(self) -> None:
        if (starting := self._starting) is not None:
            starting.stop()  # the waiting start then fails
        with self._turn:
            if self._server is not None:
                self._server.stop()


class ProcessProvider(HostProvider):
    """Serves an environment from a separate process.

        async with EchoEnv.with_provider(ProcessProvider("echo_env")) as env: ...

    Args:
        target: The environment, as for ``openenv serve``: the name of an installed package
            (``echo_env``), a directory with an ``openenv.yaml``, a Python file, or
            ``module:attribute``.
        env_vars: Environment variables of the server.
        limits: Limits of the server process.
        host: Address that the server listens on.
        python: Interpreter that runs the server; by default this process's.
        ready_timeout_s: Maximum seconds for the start, and again for getting ready.
        api_key: Key that the server requires. By default a fresh key for each start, which clients
            in this process find automatically. None: no key.

    Example:
        >>> from echo_env import EchoEnv
        >>> from openenv import ProcessLimits, ProcessProvider
        >>> provider = ProcessProvider("echo_env", limits=ProcessLimits(open_files=1024))
        >>> with EchoEnv.with_provider(provider).sync() as env:
        ...     env.reset().done
        False
    """

    capabilities: ClassVar[Capabilities] = replace(
        HostProvider.capabilities, limits=("memory", "cpu time", "open files", "file size")
    )

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        env_vars: Mapping[str, str] | None = None,
        limits: ProcessLimits | None = None,
        host: str = "127.0.0.1",
        python: str | None = None,
        ready_timeout_s: float = 60.0,
        api_key: str | FreshKey | None = FRESH_KEY,
    ) -> None:
        super().__init__(
            host=host, env_vars=env_vars, ready_timeout_s=ready_timeout_s, api_key=api_key
        )
        self.target = os.fspath(target)
        self._limits = limits or ProcessLimits()
        self._python = python

    def _spawn(self, request: LaunchRequest, key: str | None) -> ServerProcess:
        if request.options:
            raise TypeError(f"ProcessProvider does not take {sorted(request.options)}")
        program, paths = sys.executable, []
        if self._python is None:  # the server can then import the same modules as this program
            paths = [f"--path={entry}" for entry in sys.path if entry]
        elif found := shutil.which(self._python):
            program = os.path.abspath(found)
        else:
            raise ProviderError(f"there is no program {self._python!r}")
        command = [
            program,
            "-m",
            SERVER,
            absolute_target(self.target),
            f"--host={self.host}",
            f"--port={request.port or 0}",
            f"--port-file={PORT_FILE}",
            f"--app-dir={Path.cwd()}",
            *paths,
            *self._limits.to_arguments(),
        ]
        return ServerProcess(command, env_vars=request.env_vars, api_key=key)


def target_of_image(image: str) -> str:
    """Return the installed environment package that corresponds to an image's name.

    ``registry/owner/echo-env:latest`` corresponds to the package ``echo_env``.

    Raises:
        ProviderError: No such package is installed.
    """
    name = image.rsplit("/", 1)[-1].partition(":")[0].partition("@")[0]
    stem = name.lower().replace("-", "_").removeprefix("openenv_").removesuffix("_env")
    for candidate in (f"{stem}_env", stem, f"envs.{stem}_env"):
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(f"{candidate}.server.app") is not None:
                return candidate
    raise ProviderError(
        f"there is no installed environment package {stem}_env; install it (pip install "
        f"openenv-{stem.replace('_', '-')}-env)"
    )
