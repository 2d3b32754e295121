"""Environments in processes of their own: isolation where there is no container engine.

The server runs in its own session (process group), with its own temporary directory and
limits. It ends when its provider stops it, and also when the process that started it dies, for
whatever reason: it holds a pipe whose other end only that process has.

This keeps environments from disturbing each other and their caller. It is no sandbox against
code that means harm: the process runs as the same user.
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
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.base import RuntimeProvider

__all__ = ["ProcessLimits", "ProcessProvider", "ServerProcess", "target_of_image"]

LOG_TAIL_LINES = 30
STOP_GRACE_S = 10.0


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
    """A server in a process group of its own, with a log and a temporary directory.

    Args:
        command: The program and its arguments.
        env_vars: Environment variables on top of this process's.
        pass_fds: File descriptors that it inherits.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env_vars: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="openenv-"))
        self._log_path = self.directory / "server.log"
        self._kept_log: str | None = None
        scratch = self.directory / "tmp"
        scratch.mkdir()
        environment = {**os.environ, "TMPDIR": str(scratch), **(env_vars or {})}
        try:
            with self._log_path.open("wb") as log:
                self._process = subprocess.Popen(
                    list(command),
                    env=environment,
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=pass_fds,
                )
        except OSError as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise ProviderError(f"{command[0]} could not be started: {error}") from error
        self._backstop = weakref.finalize(self, _kill_group, self._process.pid, str(self.directory))

    @property
    def pid(self) -> int:
        """The process id; also that of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def logs(self, lines: int | None = None) -> str:
        """What it has printed: all of it, or the last `lines`; also after it has stopped."""
        text = self._kept_log
        if text is None:
            text = self._log_path.read_text(errors="replace")
        return text if lines is None else "\n".join(text.splitlines()[-lines:])

    def wait_until_healthy(self, base_url: str, timeout_s: float) -> None:
        """Wait until `/health` answers 200.

        Raises:
            ProviderExited: The process ended first; its last log lines are in the message.
            ProviderTimeout: It did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        pause = 0.02
        while not _is_healthy(base_url):
            self.check_running()
            if time.monotonic() > deadline:
                raise ProviderTimeout(
                    f"the server at {base_url} did not answer /health within {timeout_s:g} s",
                    logs=self.logs(LOG_TAIL_LINES),
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def check_running(self) -> None:
        """Raise `ProviderExited` if the process has ended."""
        code = self.exit_code
        if code is not None:
            how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
            raise ProviderExited(
                f"the server process ended before it was ready ({how})",
                exit_code=code,
                logs=self.logs(LOG_TAIL_LINES),
            )

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End the process and its whole group, politely first; remove its directory."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        if self._kept_log is None and self._log_path.exists():
            self._kept_log = self._log_path.read_text(errors="replace")
        self._backstop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)


def _kill_group(pid: int, directory: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


def _is_healthy(base_url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base_url}/health", timeout=2.0) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


class ProcessProvider(RuntimeProvider):
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
        ready_timeout_s: Seconds that `wait_for_ready` waits by default.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        env_vars: Mapping[str, str] | None = None,
        limits: ProcessLimits | None = None,
        host: str = "127.0.0.1",
        python: str | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:
        self.target = os.fspath(target)
        self.ready_timeout_s = ready_timeout_s
        self._env_vars = dict(env_vars or {})
        self._limits = limits or ProcessLimits()
        self._host = host
        self._python = python or sys.executable
        self._server: ServerProcess | None = None
        self._base_url: str | None = None
        self._lifeline: int | None = None

    @property
    def base_url(self) -> str:
        """The server's address.

        Raises:
            ProviderError: It is not running.
        """
        if self._base_url is None:
            raise ProviderError("the server is not running; call start()")
        return self._base_url

    @property
    def pid(self) -> int | None:
        """The server's process id; None when it is not running."""
        return None if self._base_url is None or self._server is None else self._server.pid

    def start(
        self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        if kwargs:
            raise TypeError(f"ProcessProvider.start does not take {sorted(kwargs)}")
        if self._base_url is not None:
            raise ProviderError(f"already running at {self._base_url}")
        report_in, report_out = os.pipe()
        lifeline_in, self._lifeline = os.pipe()
        try:
            self._server = ServerProcess(
                self._command(port, report_out, lifeline_in),
                env_vars={**self._env_vars, **(env_vars or {})},
                pass_fds=(report_out, lifeline_in),
            )
        except BaseException:
            os.close(report_in)
            self._drop_lifeline()
            raise
        finally:
            os.close(report_out)
            os.close(lifeline_in)
        with os.fdopen(report_in) as report:
            bound = report.readline().strip()  # an end of file if it dies before it is bound
        if not bound:
            self._fail_to_bind()
        self._base_url = f"http://{self._host}:{bound}"
        return self._base_url

    def _command(self, port: int | None, report_fd: int, lifeline_fd: int) -> list[str]:
        return [
            self._python,
            "-m",
            "openenv.server.run",
            _absolute(self.target),
            f"--host={self._host}",
            f"--port={port or 0}",
            f"--app-dir={Path.cwd()}",
            f"--report-fd={report_fd}",
            f"--lifeline-fd={lifeline_fd}",
            *self._limits.to_arguments(),
        ]

    def _fail_to_bind(self) -> None:
        assert self._server is not None
        server = self._server
        with contextlib.suppress(subprocess.TimeoutExpired):
            server._process.wait(STOP_GRACE_S)
        try:
            server.check_running()
            raise ProviderError("the server reported no port", logs=server.logs(LOG_TAIL_LINES))
        finally:
            self.stop()

    def wait_for_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the server answers `/health`; by default `ready_timeout_s` seconds."""
        if self._server is None:
            raise ProviderError("the server is not running; call start()")
        limit = self.ready_timeout_s if timeout_s is None else timeout_s
        self._server.wait_until_healthy(self.base_url, limit)

    def logs(self, lines: int | None = None) -> str:
        """What the server has printed; also after it has stopped."""
        return "" if self._server is None else self._server.logs(lines)

    def stop(self) -> None:
        self._base_url = None
        self._drop_lifeline()
        if self._server is not None:
            self._server.stop()

    def _drop_lifeline(self) -> None:
        fd, self._lifeline = self._lifeline, None
        if fd is not None:
            os.close(fd)


def _absolute(target: str) -> str:
    path, colon, attribute = target.partition(":")
    return f"{Path(path).resolve()}{colon}{attribute}" if Path(path).exists() else target


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
        f"image {image!r}: this version runs no container engine, and there is no installed "
        f"environment package {stem}_env to run in a process instead. Install it (pip install "
        f"openenv-{stem.replace('_', '-')}-env), or pass provider=..."
    )
