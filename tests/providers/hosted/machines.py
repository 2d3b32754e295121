"""What stands for the machine behind a sandbox: a directory, and processes of this machine.

A service's stand-in gives commands here as a service gives them to its sandbox. In their text,
``/tmp`` and ``/app`` are directories of the sandbox's own, and port 8000 is its own port of the
loopback interface.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.relay import Relay

MARK = "OPENENV_TEST_SANDBOX"
ECHO = "python -m uvicorn echo_env.server.app:app --host 0.0.0.0 --port 8000"
MANIFEST = "name: echo_env\napp: echo_env.server.app:app\n"
ENVS = Path(__file__).parents[3] / "envs"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass
class Ran:
    """What became of a command; `code` is None where it took too long."""

    code: int | None
    stdout: bytes
    stderr: bytes


@dataclass
class Machine:
    """A sandbox from within.

    Attributes:
        variables: Of its environment.
        manifest: The text of its ``openenv.yaml``, if it has one.
        manifest_in: The directory of that.
        server: The text of its command ``server``, if it has one.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    manifest: str | None = None
    manifest_in: str = "app/env"
    server: str | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="openenv-machine-"))
        self.port = _free_port()
        self.commands: list[str] = []
        self._links: list[Relay] = []
        for name in ("tmp", "bin", self.manifest_in):
            (self.root / name).mkdir(parents=True)
        # As an image has them on its path.
        _script(self.root / "bin" / "python", f'exec {sys.executable} "$@"')
        _script(self.root / "bin" / "uvicorn", f'exec {sys.executable} -m uvicorn "$@"')
        if self.server is not None:
            _script(self.root / "bin" / "server", self.server.format(port=self.port))
        if self.manifest is not None:
            (self.root / self.manifest_in / "openenv.yaml").write_text(self.manifest)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ENVS),
            "HOME": str(self.root / "tmp"),
            "TMPDIR": str(self.root / "tmp"),
            "SBX_PROXY_DIR": str(self.root / "tmp" / "proxy"),
            MARK: self.id,
            **self.variables,
        }

    def inside(self, text: str) -> str:
        """The text, as it means the same to this machine."""
        text = text.replace(str(self.root), "")  # what it has said itself
        text = re.sub(r"(?<![\w.])/(tmp|app)\b", rf"{self.root}/\1", text)
        return re.sub(r"\b8000\b", str(self.port), text.replace("0.0.0.0", "127.0.0.1"))

    def run(
        self, command: list[str], timeout_s: float = 60.0, environment: Mapping[str, str] = {}
    ) -> Ran:
        """Run a command to its end."""
        self.commands.append(" ".join(command))
        process = subprocess.Popen(
            [self.inside(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.root,
            env={**self.environment, **environment},
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            return Ran(None, stdout, stderr)
        code = process.returncode
        return Ran(code if code >= 0 else 128 - code, stdout, stderr)

    def write(self, path: str, data: bytes) -> None:
        """Write a file, as its owner alone may read it."""
        if path.endswith(".sh"):
            data = self.inside(data.decode()).encode()
        file = Path(self.inside(path))
        file = file if file.is_absolute() else self.root / file
        assert file.is_relative_to(self.root), path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def link(self) -> str:
        """An address of the loopback interface that leads to its port."""
        relay = Relay(f"http://127.0.0.1:{self.port}")
        self._links.append(relay)
        return relay.url

    def processes(self) -> list[int]:
        """The processes in it that run."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                variables = (entry / "environ").read_bytes().split(b"\0")
                if f"{MARK}={self.id}".encode() in variables:
                    found.append(pid)
        return found

    def kill(self) -> None:
        """End its processes, as when its power is cut."""
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def destroy(self) -> None:
        """Leave nothing of it."""
        self.kill()
        for link in self._links:
            link.close()
        shutil.rmtree(self.root, ignore_errors=True)


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
