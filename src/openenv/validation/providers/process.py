"""A provider that serves a package in a local process, without an engine and without containment.

Episodes are the same as in a container, but nothing is enforced, so checks of containment and
limits are skipped. The package's dependencies must be installed on this machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openenv.providers.process import HostServer, ProcessLimits, ProcessProvider
from openenv.validation.manifest import ExecutionDeclaration
from openenv.validation.providers import LaunchSpec, UnmetRequirement
from openenv.validation.providers.served import ServedSubject
from openenv.validation.targets import source_digest
from openenv.validation.types import ProviderCapability

MIB = 2**20


class ProcessValidationProvider:
    """A provider that serves packages in local processes.

    A package's declared `disk_mb` limits the size of each file that the package writes. Memory,
    processors and the network are not limited.
    """

    name = "process"
    capabilities = frozenset({ProviderCapability.EXEC})
    supported_network_modes = frozenset({"public"})

    def __init__(self) -> None:
        self._roots: dict[str, Path] = {}

    def build(self, root: Path, execution: ExecutionDeclaration) -> str:
        """Record the package's directory and return the digest of the sources."""
        digest = f"sha256:{source_digest(root)}"
        self._roots[digest] = root.resolve()
        return digest

    def start(self, spec: LaunchSpec) -> ProcessSubject:
        """Serve a package and wait until the server is ready.

        Raises:
            SubjectError: The process ended, or did not answer in time.
            UnmetRequirement: The package was not built by this provider.
        """
        root = self._roots.get(spec.image_ref)
        if root is None:
            raise UnmetRequirement(
                "image_build", f"{spec.image_ref} was not built by this provider"
            )
        provider = ProcessProvider(
            root,
            env_vars=spec.env_vars,
            limits=ProcessLimits(file_size_bytes=spec.resources.disk_mb * MIB),
            ready_timeout_s=spec.startup_timeout_s,
        )
        return ProcessSubject.begin(provider.launch, spec)


class ProcessSubject(ServedSubject):
    """A package served by a local process."""

    def inspect(self) -> dict[str, Any]:
        """Return the identity, limits and network in force."""
        assert isinstance(self._server, HostServer)
        return {
            "provider": ProcessValidationProvider.name,
            "isolation": "process",
            "pid": self._server.pid,
            "image": self._spec.image_ref,
            "network_mode": "host",
            "limits": {"file_size_mb": self._spec.resources.disk_mb},
        }
