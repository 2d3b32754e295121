"""Environments by `uv run`: each project with the dependencies that it names."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from openenv.errors import ProviderError
from openenv.providers.base import RuntimeProvider
from openenv.providers.process import ServerProcess

__all__ = ["UVProvider"]

_WILDCARDS = ("0.0.0.0", "::", "")


class UVProvider(RuntimeProvider):
    """Serves a project from an environment that uv builds for it.

    Args:
        project_path: A directory with a ``pyproject.toml``, or ``git+<url>[@ref]``, which is
            cloned for the time it runs.
        app: The application, as ``module:attribute`` in the project.
        host: The address it listens on.
        reload: Restart when the sources change.
        env_vars: Environment variables of the server.
        context_timeout_s: Seconds that cloning, and then getting ready, may take.
    """

    def __init__(
        self,
        *,
        project_path: str,
        app: str = "server.app:app",
        host: str = "127.0.0.1",
        reload: bool = False,
        env_vars: dict[str, str] | None = None,
        context_timeout_s: float = 60.0,
    ) -> None:
        self.project_path = project_path
        self.app = app
        self.host = host
        self.reload = reload
        self.context_timeout_s = context_timeout_s
        self._env_vars = dict(env_vars or {})
        self._server: ServerProcess | None = None
        self._clone: str | None = None
        self._base_url: str | None = None

    @property
    def base_url(self) -> str:
        """The server's address.

        Raises:
            ProviderError: It is not running.
        """
        if self._base_url is None:
            raise ProviderError("the server is not running; call start()")
        return self._base_url

    def start(
        self,
        port: int | None = None,
        env_vars: dict[str, str] | None = None,
        workers: int = 1,
        **kwargs: Any,
    ) -> str:
        if kwargs:
            raise TypeError(f"UVProvider.start does not take {sorted(kwargs)}")
        if self._base_url is not None:
            raise ProviderError(f"already running at {self._base_url}")
        uv = shutil.which("uv")
        if uv is None:
            raise ProviderError("uv is not installed; install it with: pip install uv")
        port = port or _free_port(self.host)
        command = [uv, "run", "--isolated", "--project", str(self._project()), "--", "uvicorn"]
        command += [self.app, "--host", self.host, "--port", str(port), "--workers", str(workers)]
        command += ["--app-dir", str(self._project())]
        if self.reload:
            command.append("--reload")
        self._server = ServerProcess(command, env_vars={**self._env_vars, **(env_vars or {})})
        host = "127.0.0.1" if self.host in _WILDCARDS else self.host
        self._base_url = f"http://{host}:{port}"
        return self._base_url

    def _project(self) -> Path:
        if not self.project_path.startswith("git+"):
            return Path(self.project_path).resolve()
        if self._clone is None:
            self._clone = self._cloned(self.project_path.removeprefix("git+"))
        return Path(self._clone)

    def _cloned(self, source: str) -> str:
        url, at, ref = (
            source.rpartition("@") if "@" in source.rsplit("/", 1)[-1] else (source, "", "")
        )
        directory = tempfile.mkdtemp(prefix="openenv-clone-")
        command = ["git", "clone", "--depth", "1", *(["--branch", ref] if at else [])]
        try:
            subprocess.run(
                [*command, "--", url, directory],
                check=True,
                capture_output=True,
                text=True,
                timeout=self.context_timeout_s,
            )
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            words = getattr(error, "stderr", None) or error
            raise ProviderError(f"{url} could not be cloned: {words}") from error
        return directory

    def wait_for_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the server answers `/health`; by default `context_timeout_s` seconds."""
        if self._server is None:
            raise ProviderError("the server is not running; call start()")
        limit = self.context_timeout_s if timeout_s is None else timeout_s
        self._server.wait_until_healthy(self.base_url, limit)

    def logs(self, lines: int | None = None) -> str:
        """What the server has printed; also after it has stopped."""
        return "" if self._server is None else self._server.logs(lines)

    def stop(self) -> None:
        self._base_url = None
        if self._server is not None:
            self._server.stop()
        clone, self._clone = self._clone, None
        if clone is not None:
            shutil.rmtree(clone, ignore_errors=True)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind(("" if host in _WILDCARDS else host, 0))
        port: int = probe.getsockname()[1]
        return port
