"""Providers that start a package for validation, and the running package's interface.

A provider states its capabilities. A check that needs a missing capability is skipped and names the
capability; there is no weaker fallback. The modules here adapt the providers of
`openenv.providers`, which are not changed for validation.

Read this module first, then `served.py` (the common part) and `docker.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from openenv.errors import OpenEnvError
from openenv.validation.manifest import ExecutionDeclaration, NetworkPolicy, ResourceDeclaration
from openenv.validation.types import ProviderCapability

if TYPE_CHECKING:
    from openenv.validation.static.builds import BuildSettings


class SubjectError(OpenEnvError, RuntimeError):
    """A failure to build or start a package, for which the package is at fault.

    Attributes:
        phase: The failed phase: ``build``, ``start`` or ``readiness``.
        logs: The last lines of output.
    """

    def __init__(self, phase: str, reason: str, *, logs: str = "") -> None:
        self.phase = phase
        self.logs = logs
        super().__init__(reason)


class UnmetRequirement(OpenEnvError, RuntimeError):
    """A requirement of a package that this machine or provider lacks; the package is not at fault.

    Attributes:
        capability: The missing capability, by its name in the report.
    """

    def __init__(self, capability: str, reason: str) -> None:
        self.capability = capability
        super().__init__(reason)


@dataclass(frozen=True)
class ExecResult:
    """The result of a command that ran where the subject runs.

    Attributes:
        exit_code: The exit code.
        stdout: The standard output.
        stderr: The standard error.
        duration_s: The duration in seconds.
    """

    exit_code: int
    stdout: str
    stderr: str
    duration_s: float


class LaunchSpec(BaseModel):
    """The inputs of a running subject, which inherits no other variables or keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_ref: str = Field(
        pattern=r"^(?:[^@\s]+@)?sha256:[0-9a-f]{64}$",
        description="The digest of the image, or of the sources if there is no image.",
    )
    resources: ResourceDeclaration = Field(description="Resource limits.")
    network: NetworkPolicy = Field(description="Network policy.")
    run_id: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="A unique name of this start."
    )
    startup_timeout_s: float = Field(
        default=30.0, gt=0.0, le=300.0, description="Seconds until the server must answer."
    )
    env_vars: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="Environment variables of the server."
    )


@runtime_checkable
class RunningSubject(Protocol):
    """A package that is being served.

    Attributes:
        base_url: The server's address. Clients in this process find the server's key themselves.
    """

    base_url: str

    def inspect(self) -> dict[str, Any]:
        """Return the identity, limits and network in force, as JSON data."""
        ...

    def logs(self, max_bytes: int = 65536) -> str:
        """Return the last part of the output."""
        ...

    def exec(self, argv: list[str], timeout_s: float) -> ExecResult:
        """Run a command where the subject runs. Requires a provider with the EXEC capability.

        Raises:
            UnmetRequirement: The provider cannot run commands.
            ProviderError: The command could not be run, or took too long.
        """
        ...

    def stop(self) -> None:
        """Stop the subject and remove everything that was made for the run. Idempotent."""


@runtime_checkable
class ValidationProvider(Protocol):
    """A provider that builds and starts packages.

    Attributes:
        name: The name in reports.
        capabilities: The provider's capabilities.
        supported_network_modes: The modes of `NetworkPolicy` that the provider enforces.
    """

    name: str
    capabilities: frozenset[ProviderCapability]
    supported_network_modes: frozenset[str]

    def build(self, root: Path, execution: ExecutionDeclaration) -> str:
        """Build a package's image and return the digest.

        Raises:
            SubjectError: The package cannot be built.
            UnmetRequirement: The build tool is missing.
        """
        ...

    def start(self, spec: LaunchSpec) -> RunningSubject:
        """Start a built package and wait until the server is ready.

        Raises:
            SubjectError: The package ended, or did not answer in time.
            UnmetRequirement: The provider cannot meet a requirement of the package.
        """
        ...


def choose_provider(
    name: Literal["auto", "docker", "process"] = "auto",
    *,
    skip_build: bool = False,
    settings: BuildSettings | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> ValidationProvider:
    """Choose a provider; the report names the choice and what it cannot enforce.

    ``auto`` chooses a container if an engine can build and run one, and a process otherwise or with
    `skip_build`. `tell` receives the reason why there is no container, and the build steps.
    """
    from openenv.validation.providers.process import ProcessValidationProvider

    if name == "process" or (name == "auto" and skip_build):
        return ProcessValidationProvider()
    from openenv.validation.providers.docker import DockerValidationProvider, find_engine_fault

    if name == "auto" and (why_not := find_engine_fault()) is not None:
        tell(f"it is run in a process, which contains nothing: {why_not}")
        return ProcessValidationProvider()
    return DockerValidationProvider(settings, tell)
