"""A package served by a process of this machine: no engine is needed, and nothing is contained.

It plays what a container plays, and enforces nothing: whatever asks what it can reach or take is
skipped. The package's dependencies must be installed here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.process import HostServer, ProcessLimits, ProcessProvider
from openenv.validation.digest import source_digest
from openenv.validation.manifest import ExecutionDeclaration
from openenv.validation.providers import ExecResult, LaunchSpec, SubjectError, UnmetRequirement
from openenv.validation.types import ProviderCapability

__all__ = ["ProcessSubject", "ProcessValidationProvider"]

MIB = 2**20
LOG_LINES = 30


class ProcessValidationProvider:
    """Serves packages from processes of this machine.

    A package's declared `disk_mb` limits the largest file that it may write. Memory, processors
    and the network are the machine's.
    """

    name = "process"
    capabilities = frozenset({ProviderCapability.EXEC})
    supported_network_modes = frozenset({"public"})

    def __init__(self) -> None:
        self._roots: dict[str, Path] = {}

    def build(self, root: Path, execution: ExecutionDeclaration) -> str:
        """Note where a package is; its digest is that of its sources, as there is no image."""
        digest = f"sha256:{source_digest(root)}"
        self._roots[digest] = root.resolve()
        return digest

    def start(self, spec: LaunchSpec) -> ProcessSubject:
        """Serve a package, and wait until it answers.

        Raises:
            SubjectError: It ended, or did not answer in time.
            UnmetRequirement: It was not built here.
        """
        root = self._roots.get(spec.image_ref)
        if root is None:
            raise UnmetRequirement("image_build", f"{spec.image_ref} is no package of this machine")
        provider = ProcessProvider(
            root,
            env_vars=spec.env_vars,
            limits=ProcessLimits(file_size_bytes=spec.resources.disk_mb * MIB),
            ready_timeout_s=spec.startup_timeout_s,
        )
        try:
            server = provider.launch()
        except ProviderError as error:
            raise _subject_error(error, "start") from error
        assert isinstance(server, HostServer)
        try:
            server.wait_for_ready(spec.startup_timeout_s)
        except ProviderError as error:
            server.stop()
            raise _subject_error(error, "readiness") from error
        return ProcessSubject(server, spec)


def _subject_error(error: ProviderError, phase: str) -> SubjectError:
    if isinstance(error, ProviderTimeout):
        phase = "readiness"
    elif isinstance(error, ProviderExited):
        phase = "start"
    return SubjectError(phase, str(error), logs=str(getattr(error, "logs", "")))


class ProcessSubject:
    """A package that is served by a process.

    Attributes:
        base_url: Where.
    """

    def __init__(self, server: HostServer, spec: LaunchSpec) -> None:
        self._server = server
        self._spec = spec
        self.base_url = server.url

    def inspect(self) -> dict[str, Any]:
        """What is in force."""
        return {
            "provider": ProcessValidationProvider.name,
            "isolation": "process",
            "pid": self._server.pid,
            "image": self._spec.image_ref,
            "network_mode": "host",
            "limits": {"file_size_mb": self._spec.resources.disk_mb},
        }

    def logs(self, max_bytes: int = 65536) -> str:
        """The end of what it has printed."""
        return self._server.logs()[-max_bytes:]

    def exec(self, argv: list[str], timeout_s: float) -> ExecResult:
        """Run a command with its variables, in its directory.

        Raises:
            ProviderError: It could not be run, or took longer.
        """
        began = time.monotonic()
        done = self._server.execute(argv, timeout_s)
        return ExecResult(done.exit_code, done.stdout, done.stderr, time.monotonic() - began)

    def stop(self) -> None:
        """End it, with all that it started."""
        self._server.stop()
