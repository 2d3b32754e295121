"""Environments in processes of their own: isolation where there is no container engine.

The server runs in its own session (process group), with its own temporary directory and
limits. It ends when its provider stops it, and also when the process that started it ends, for
whatever reason: a watcher in the server's group reads a pipe whose other end only that process
has. Whatever the server itself has started ends with it, unless it left the group (`setsid`).

This keeps environments from disturbing each other and their caller. It is no sandbox against
code that means harm: the process runs as the same user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
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
from openenv.providers._asked import key_of
from openenv.providers._readiness import LOG_TAIL_LINES, wait_until
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey, RuntimeProvider
from openenv.providers.servers import EXECUTE_TIMEOUT_S, Executed, Server, ServerProvider
from openenv.settings import without_keys

__all__ = [
    "HostProvider",
    "HostServer",
    "ProcessLimits",
    "ProcessProvider",
    "ServerProcess",
    "Spawned",
    "target_of_image",
]

STOP_GRACE_S = 10.0
GROUP_END_S = 1.0
PORT_FILE = "port"
KEY_FILE = "key"
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}

# Leaves a watcher behind in the server's group: a child of nobody, so that a server which waits
# for its children never waits for it. Standard input is the lifeline.
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
# It is run by a forked server, or turns into the server, `$@`.
_WATCH = f"directory=$1 server=$2 {_WATCHER}"
_LAUNCH = f'directory=$1 server=$$; shift {_WATCHER} exec "$@"'
SERVER = "openenv.server.run"


@dataclass(frozen=True)
class ProcessLimits:
    """What a server process may use; None leaves the limit of this process in force.

    Attributes:
        memory_bytes: Address space (RLIMIT_AS).
        cpu_seconds: CPU time over its whole life (RLIMIT_CPU).
        open_files: File descriptors (RLIMIT_NOFILE).
        file_size_bytes: The largest file it may write (RLIMIT_FSIZE).
        core_bytes: The largest core dump (RLIMIT_CORE); none by default.
    """

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None
    file_size_bytes: int | None = None
    core_bytes: int | None = 0

    def to_arguments(self) -> list[str]:
        """Write the limits as arguments of ``python -m openenv.server.run``."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return [f"--limit={name}={value}" for name, value in given.items()]


class ServerProcess:
    """A server in a process group of its own, with a log and a directory of its own.

    Args:
        command: The program and its arguments. It runs in `directory`.
        env_vars: Environment variables on top of this process's.
        directory: Where it lives, removed when it ends; by default a new temporary one.
        api_key: The key that it is to want. It is told by a file, which `forget_key` removes.

    Raises:
        ProviderError: It could not be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env_vars: Mapping[str, str] | None = None,
        directory: Path | None = None,
        api_key: str | None = None,
    ) -> None:
        register_secrets_of(env_vars or {})
        register_secret(api_key or "")
        self.directory = directory or Path(tempfile.mkdtemp(prefix="openenv-"))
        self._log_path = self.directory / "server.log"
        self._kept_log: str | None = None
        self._owner = os.getpid()
        watched, lifeline = os.pipe()
        try:
            (self.directory / "tmp").mkdir()
            environ = _environment(self.directory / "tmp", env_vars or {})
            if api_key is not None:
                environ["OPENENV_API_KEY_FILE"] = str(self._write_key(api_key))
            self._environ = environ
            with self._log_path.open("wb") as log:
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

    def _write_key(self, key: str) -> Path:
        path = self.directory / KEY_FILE
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"key": key, "role": "orchestrator", "name": "provider"}, file)
        return path

    def forget_key(self) -> None:
        """Remove the file by which it was told its key, once it has read it."""
        (self.directory / KEY_FILE).unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        """The process id; also that of its group."""
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """Where it writes what it prints, until it has stopped."""
        return self._log_path

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    @property
    def is_stopped(self) -> bool:
        """`stop` has been called."""
        return self._kept_log is not None

    def logs(self, lines: int | None = None) -> str:
        """What it has printed: all of it, or the last `lines`; also after it has stopped."""
        text = self._kept_log
        if text is None:
            text = self._read("server.log")
        return text if lines is None else "\n".join(text.splitlines()[-lines:])

    def _read(self, name: str) -> str:
        try:
            return (self.directory / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def wait_for_port(self, timeout_s: float) -> int:
        """Wait until it has written the port that it listens on into its file `port`.

        Raises:
            ProviderExited: The process ended first.
            ProviderTimeout: It took longer.
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
        """Run a command where it lives, with its variables; it ends with all that it started.

        Raises:
            ProviderError: It could not be run, or took longer.
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
        """End the process and its whole group, politely first; remove its directory."""
        if self.is_stopped or self._owner != os.getpid():
            return  # it has been stopped, or this is a forked child's copy
        try:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        finally:
            # The watcher, which is in the group, has kept the group's id from being used again.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._kept_log = self.logs()
            self._abandon()
            self._process.wait()
            _wait_for_group(self.pid)
            shutil.rmtree(self.directory, ignore_errors=True)


def _wait_for_group(group: int) -> None:
    """Wait until the killed processes of a group have ended, for `GROUP_END_S` at most."""
    deadline = time.monotonic() + GROUP_END_S
    while _is_running(group) and time.monotonic() < deadline:
        time.sleep(0.005)


def _is_running(group: int) -> bool:
    """Return whether a process of a group runs.

    One that has ended, but that its parent has not waited for, does not. The watcher's parent is
    init, and what is process 1 in a container may wait for its children late, or never.
    """
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # not Linux
        return True
    return any(_group_and_state(name) == (str(group), True) for name in processes)


def _group_and_state(process: str) -> tuple[str, bool]:
    """Return the group of a process, by its entry in /proc, and whether it runs; see proc(5)."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            state, _parent, group, *_rest = file.read().rpartition(")")[2].split()
    except (OSError, ValueError):  # it is gone
        return "", False
    return group, state not in ("Z", "X")


def _environment(scratch: Path, env_vars: Mapping[str, str]) -> dict[str, str]:
    # A key of this program is for servers that others have started, not for this one.
    environment = {**without_keys(os.environ), "TMPDIR": str(scratch), **env_vars}
    if path := absolute_path(environment):
        environment["PYTHONPATH"] = path
    return environment


_lifelines: set[int] = set()


def _abandon(process: ChildProcess, lifeline: int) -> None:
    """Let go of a server: its watcher then ends it, politely first."""
    if lifeline in _lifelines:
        _lifelines.discard(lifeline)
        os.close(lifeline)
    if isinstance(process, subprocess.Popen) and process.poll() is None:
        with contextlib.suppress(RuntimeError):  # the interpreter is about to end
            threading.Thread(target=process.wait, name="openenv-reaper", daemon=True).start()


def _drop_lifelines() -> None:
    """In a forked child: the servers are its parent's."""
    for lifeline in _lifelines:
        os.close(lifeline)
    _lifelines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_lifelines)


@dataclass(frozen=True)
class Spawned:
    """A process that has just been started.

    Attributes:
        process: The process.
        port: What it listens on; None where it says so itself, in its file ``port``.
        keeps_key_file: It has others read the file of its key again, later.
    """

    process: ServerProcess
    port: int | None = None
    keeps_key_file: bool = False


class HostServer(Server):
    """A server in a process of this machine.

    Attributes:
        process: The process.
        pid: Its id.
    """

    def __init__(
        self,
        process: ServerProcess,
        url: str,
        key: str | None,
        ready_timeout_s: float,
        keeps_key_file: bool,
    ) -> None:
        super().__init__(url, f"process {process.pid}", key)
        self.process = process
        self._ready_timeout_s = ready_timeout_s
        self._keeps_key_file = keeps_key_file

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
        """Wait until it answers; by default as many seconds as its provider was made for."""
        super().wait_for_ready(self._ready_timeout_s if timeout_s is None else timeout_s)
        if not self._keeps_key_file:
            self.process.forget_key()

    def _stop(self) -> None:
        self.process.stop()


class HostProvider(ServerProvider, RuntimeProvider):
    """Runs servers as processes of this machine.

    Args:
        host: The address they listen on.
        env_vars: Environment variables of each.
        ready_timeout_s: Seconds that one may take to get ready.
        api_key: The key that it wants: by default a fresh one for each start; None is none. On a
            loopback address ``/schema`` wants none anyway.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        isolation="process",
        fresh_keys=True,
        many=True,
        detects_exit=True,
        has_logs=True,
        can_execute=True,
        orphans="end at once",
    )

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
        self._starting: ServerProcess | None = None  # what `start` waits for

    @abstractmethod
    def _spawn(
        self,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
        key: str | None,
    ) -> Spawned:
        """Start a process."""

    def _launch(
        self,
        image: str | None,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> HostServer:
        if image is not None:
            raise ProviderError(
                f"{type(self).__name__} runs no images; it serves what it was made for"
            )
        key = key_of(self._wanted_key)
        env_vars = {**self._env_vars, **env_vars}
        if key is not None and is_loopback(self.host):
            # Trainers' own code asks by itself how one acts, and knows of no key.
            env_vars = {"OPENENV_PUBLIC_SCHEMA": "1", **env_vars}
        spawned = self._spawn(port, env_vars, options, key)
        process = self._starting = spawned.process
        try:
            at = spawned.port or process.wait_for_port(self.ready_timeout_s)
            process.check_running()
        except BaseException:
            process.stop()
            raise
        finally:
            self._starting = None
        return HostServer(
            process, _url(self.host, at), key, self.ready_timeout_s, spawned.keeps_key_file
        )

    @property
    def pid(self) -> int | None:
        """The process id of the server that is held; None when it is not running."""
        server = self._server
        is_there = isinstance(server, HostServer) and not server.is_stopped
        return server.pid if is_there and isinstance(server, HostServer) else None

    @property
    def log_path(self) -> str | None:
        """The file that the log of the server is in; None when it is not running."""
        server = self._server
        is_there = isinstance(server, HostServer) and not server.is_stopped
        return str(server.process.log_path) if is_there and isinstance(server, HostServer) else None

    def start(
        self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        return self._hold(lambda: self.launch(port=port, env_vars=env_vars, **kwargs)).url

    def wait_for_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the server answers `/health`; by default `ready_timeout_s` seconds."""
        self._held().wait_for_ready(self.ready_timeout_s if timeout_s is None else timeout_s)

    def stop(self) -> None:
        if (starting := self._starting) is not None:
            starting.stop()  # which ends the start that waits for it
        with self._turn:
            if self._server is not None:
                self._server.stop()


def _url(host: str, port: int) -> str:
    host = WILDCARD_HOSTS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ProcessProvider(HostProvider):
    """Serves an environment from a process of its own.

        async with EchoEnv.with_provider(ProcessProvider("echo_env")) as env: ...

    Args:
        target: What to serve, as for ``openenv serve``: the name of an installed environment
            package (``echo_env``), a directory with an ``openenv.yaml``, a Python file, or
            ``module:attribute``.
        env_vars: Environment variables of the server.
        limits: What it may use.
        host: The address it listens on.
        python: The interpreter that runs it; by default this one.
        ready_timeout_s: Seconds that starting, and then getting ready, may take.
        api_key: The key that the server wants: by default a fresh one for each start, which
            clients in this process find by themselves; None is none.
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

    def _spawn(
        self,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
        key: str | None,
    ) -> Spawned:
        if options:
            raise TypeError(f"ProcessProvider does not take {sorted(options)}")
        return Spawned(ServerProcess(self._command(port), env_vars=env_vars, api_key=key))

    def _command(self, port: int | None) -> list[str]:
        return [
            sys.executable if self._python is None else _program(self._python),
            "-m",
            SERVER,
            absolute_target(self.target),
            f"--host={self.host}",
            f"--port={port or 0}",
            f"--port-file={PORT_FILE}",
            f"--app-dir={Path.cwd()}",
            # What this program can import, a server with the same interpreter can too.
            *([f"--path={entry}" for entry in sys.path if entry] if self._python is None else []),
            *self._limits.to_arguments(),
        ]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ProviderError(f"there is no program {name!r}")
    return os.path.abspath(found)


def target_of_image(image: str) -> str:
    """Find the installed environment package that an image's name stands for.

    ``registry/owner/echo-env:latest`` stands for the package ``echo_env``.

    Raises:
        ProviderError: There is no such package.
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
