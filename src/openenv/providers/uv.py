"""Servers started by `uv run`, each with the dependencies that its project declares."""

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
from openenv.providers.process import HostProvider, ServerProcess
from openenv.providers.servers import LaunchRequest

__all__ = ["UVProvider"]

# An installed package is served under its name, since its modules may import each other
# relatively; any other project is served from its directory.
_UVICORN = """
import importlib.util, sys, uvicorn
package, app = sys.argv[1:3]
if package and importlib.util.find_spec(package):
    app = f"{package}.{app}"
sys.argv[:3] = ["uvicorn", app]
uvicorn.main()
"""


class UVProvider(HostProvider):
    """Serves a project from a Python environment that uv builds.

    Args:
        project_path: A directory with a ``pyproject.toml``, or ``git+<url>[@ref]``, whose clone
            lasts as long as the server. `ref` is a branch, a tag or a commit.
        app: The application, as ``module:attribute`` in the project.
        host: The address that the server listens on.
        reload: Restart the server when the sources change.
        env_vars: Environment variables of the server.
        context_timeout_s: Maximum seconds for each git command, and again for the server to get
            ready.
        api_key: Key that the server requires. By default a fresh key for each start, which clients
            in this process find automatically. None: no key. Servers of the public package check no
            keys.

    Example:
        >>> from openenv import GenericEnvClient, UVProvider
        >>> provider = UVProvider(project_path="git+https://github.com/you/my-env@v1")
        >>> env = GenericEnvClient.with_provider(provider)  # its first use starts the server
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

    def _spawn(self, request: LaunchRequest, key: str | None) -> ServerProcess:
        if unknown := sorted(request.options.keys() - {"workers"}):
            raise TypeError(f"UVProvider does not take {unknown}; it takes workers")
        uv = shutil.which("uv")
        if uv is None:
            raise ProviderError("uv is not installed; install it with: pip install uv")
        workers = request.options.get("workers", 1)
        port = _free_port(self.host, request.port or 0)
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
        # The project declares its dependencies; this program's PYTHONPATH must not add to them.
        env_vars = {"PYTHONPATH": "", **request.env_vars}
        return ServerProcess(
            command,
            env_vars=env_vars,
            directory=directory,
            api_key=key,
            port=port,
            keeps_key_file=self.reload or workers > 1,
        )

    def _project(self, directory: Path) -> Path:
        if not self.project_path.startswith("git+"):
            project = Path(self.project_path).resolve()
            if not (project / "pyproject.toml").exists():
                raise ProviderError(f"{project} has no pyproject.toml, so uv cannot run it")
            return project
        clone = directory / "clone"
        self._clone(self.project_path.removeprefix("git+"), clone)
        (directory / "projects").mkdir()
        # The package is the directory itself, which must have the package's name.
        return clone.rename(directory / "projects" / (_package(clone) or "project"))

    def _clone(self, source: str, directory: Path) -> None:
        url, at, ref = (
            source.rpartition("@") if "@" in source.rsplit("/", 1)[-1] else (source, "", "")
        )
        try:
            directory.mkdir()
            for command in (
                ["init", "--quiet"],
                ["fetch", "--quiet", "--depth", "1", "--", url, ref if at else "HEAD"],
                ["checkout", "--quiet", "FETCH_HEAD"],
            ):
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
        except (OSError, subprocess.SubprocessError) as error:
            words = getattr(error, "stderr", None) or error
            raise ProviderError(redact(f"{source} could not be cloned: {words}")) from None


def _package(project: Path) -> str:
    return package_name(read_manifest(project) or {})


def _free_port(host: str, wanted: int) -> int:
    """Return a free port if `wanted` is 0; otherwise check that `wanted` is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError as error:
            raise ProviderError(f"cannot listen on {host} port {wanted}: {error}") from error
        port: int = probe.getsockname()[1]
        return port
