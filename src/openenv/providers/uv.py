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

from openenv._internal.redaction import redact
from openenv.errors import ProviderError
from openenv.manifest import package_name, read_manifest
from openenv.providers.base import FRESH_KEY, FreshKey
from openenv.providers.process import HostProvider, ServerProcess, Spawned

__all__ = ["UVProvider"]

# A project that is installed as a package is served as that package, since its modules may
# import each other relatively; any other from its directory.
_UVICORN = """
import importlib.util, sys, uvicorn
package, app = sys.argv[1:3]
if package and importlib.util.find_spec(package):
    app = f"{package}.{app}"
sys.argv[:3] = ["uvicorn", app]
uvicorn.main()
"""


class UVProvider(HostProvider):
    """Serves a project from an environment that uv builds for it.

    Args:
        project_path: A directory with a ``pyproject.toml``, or ``git+<url>[@ref]``, which is
            cloned for the time it runs; `ref` is a branch, a tag or a commit.
        app: The application, as ``module:attribute`` in the project.
        host: The address it listens on.
        reload: Restart when the sources change.
        env_vars: Environment variables of the server.
        context_timeout_s: Seconds that cloning, and then getting ready, may take.
        api_key: The key that the server wants: by default a fresh one for each start, which
            clients in this process find by themselves; None is none. A server of the public
            package lets everybody in all the same.
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
        api_key: str | FreshKey | None = FRESH_KEY,
    ) -> None:
        super().__init__(
            host=host, env_vars=env_vars, ready_timeout_s=context_timeout_s, api_key=api_key
        )
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
        return super().start(port, env_vars, workers=workers, **kwargs)

    def _spawn(
        self,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
        key: str | None,
    ) -> Spawned:
        if unknown := sorted(options.keys() - {"workers"}):
            raise TypeError(f"UVProvider does not take {unknown}; it takes workers")
        uv = shutil.which("uv")
        if uv is None:
            raise ProviderError("uv is not installed; install it with: pip install uv")
        workers = options.get("workers", 1)
        chosen = _free_port(self.host, port or 0)
        process = self._run(uv, chosen, workers, env_vars, key)
        # A server that starts processes later has them read the file of its key again.
        return Spawned(process, chosen, keeps_key_file=self.reload or workers > 1)

    def _run(
        self, uv: str, port: int, workers: int, env_vars: Mapping[str, str], key: str | None
    ) -> ServerProcess:
        directory = Path(tempfile.mkdtemp(prefix="openenv-"))
        try:
            project = self._project(directory)
            package = _package(project)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        command = [uv, "run", "--isolated", "--project", str(project), "--"]
        command += ["python", "-c", _UVICORN, package, self.app]
        command += ["--host", self.host, "--port", str(port), "--workers", str(workers)]
        command += ["--app-dir", str(project), *(["--reload"] if self.reload else [])]
        # What this program has on its path is no dependency that the project names.
        env_vars = {"PYTHONPATH": "", **env_vars}
        return ServerProcess(command, env_vars=env_vars, directory=directory, api_key=key)

    def _project(self, directory: Path) -> Path:
        if not self.project_path.startswith("git+"):
            project = Path(self.project_path).resolve()
            if not (project / "pyproject.toml").exists():
                raise ProviderError(f"{project} has no pyproject.toml, so uv cannot run it")
            return project
        clone = directory / "clone"
        self._clone(self.project_path.removeprefix("git+"), clone)
        (directory / "projects").mkdir()
        # A package that is its own directory has to be in one of its name.
        return clone.rename(directory / "projects" / (_package(clone) or "project"))

    def _clone(self, source: str, directory: Path) -> None:
        url, at, ref = (
            source.rpartition("@") if "@" in source.rsplit("/", 1)[-1] else (source, "", "")
        )
        try:
            for command in (
                ["init", "--quiet"],
                ["fetch", "--quiet", "--depth", "1", "--", url, ref if at else "HEAD"],
                ["checkout", "--quiet", "FETCH_HEAD"],
            ):
                self._git(directory, command)
        except (OSError, subprocess.SubprocessError) as error:
            words = getattr(error, "stderr", None) or error
            raise ProviderError(redact(f"{source} could not be cloned: {words}")) from None

    def _git(self, directory: Path, command: list[str]) -> None:
        directory.mkdir(exist_ok=True)
        subprocess.run(  # nosec B603, B607  # no shell; whichever git there is
            ["git", *command],
            cwd=directory,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            text=True,
            timeout=self.context_timeout_s,
        )


def _package(project: Path) -> str:
    """The package that a project's manifest names; empty if it names none."""
    return package_name(read_manifest(project) or {})


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
