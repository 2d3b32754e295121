"""Environments by `uv run`: each project with the dependencies that it names."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openenv.errors import ProviderError
from openenv.providers.process import HostProvider, ServerProcess

__all__ = ["UVProvider"]


class UVProvider(HostProvider):
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
        env_vars: Mapping[str, str] | None = None,
        context_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(host=host, env_vars=env_vars, ready_timeout_s=context_timeout_s)
        self.project_path = project_path
        self.app = app
        self.reload = reload
        self.context_timeout_s = context_timeout_s

    def start(
        self,
        port: int | None = None,
        env_vars: dict[str, str] | None = None,
        workers: int = 1,
        **kwargs: Any,
    ) -> str:
        if kwargs:
            raise TypeError(f"UVProvider.start does not take {sorted(kwargs)}")
        uv = shutil.which("uv")
        if uv is None:
            raise ProviderError("uv is not installed; install it with: pip install uv")
        chosen = _free_port(self.host, port or 0)
        return self._run(
            lambda: self._launch([uv, "run"], chosen, workers, env_vars or {}), lambda _: chosen
        )

    def _launch(
        self, run: list[str], port: int, workers: int, env_vars: Mapping[str, str]
    ) -> ServerProcess:
        directory = Path(tempfile.mkdtemp(prefix="openenv-"))
        try:
            project = self._project(directory / "project")
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        command = [*run, "--isolated", "--project", str(project), "--", "uvicorn", self.app]
        command += ["--host", self.host, "--port", str(port), "--workers", str(workers)]
        command += ["--app-dir", str(project), *(["--reload"] if self.reload else [])]
        return ServerProcess(command, env_vars={**self._env_vars, **env_vars}, directory=directory)

    def _project(self, clone: Path) -> Path:
        if not self.project_path.startswith("git+"):
            project = Path(self.project_path).resolve()
            if not (project / "pyproject.toml").exists():
                raise ProviderError(f"{project} has no pyproject.toml, so uv cannot run it")
            return project
        self._clone(self.project_path.removeprefix("git+"), clone)
        return clone

    def _clone(self, source: str, directory: Path) -> None:
        url, at, ref = (
            source.rpartition("@") if "@" in source.rsplit("/", 1)[-1] else (source, "", "")
        )
        command = ["git", "clone", "--depth", "1", *(["--branch", ref] if at else [])]
        try:
            subprocess.run(
                [*command, "--", url, str(directory)],
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
                text=True,
                timeout=self.context_timeout_s,
            )
        except (OSError, subprocess.SubprocessError) as error:
            words = getattr(error, "stderr", None) or error
            raise ProviderError(f"{url} could not be cloned: {words}") from error


def _free_port(host: str, wanted: int) -> int:
    """Find a free port, or see that the one that is wanted is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError as error:
            raise ProviderError(f"cannot listen on {host} port {wanted}: {error}") from error
        port: int = probe.getsockname()[1]
        return port
