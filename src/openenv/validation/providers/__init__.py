"""What starts a package for a validation, and what can then be done with it.

A provider says what it is capable of. A check that needs more is skipped, and names what was
missing: nothing weaker is tried instead. The providers of `openenv.providers` are adapted in the
modules here, and are not changed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from openenv.errors import OpenEnvError
from openenv.validation.manifest import ExecutionDeclaration, NetworkPolicy, ResourceDeclaration
from openenv.validation.types import ProviderCapability

__all__ = [
    "ExecResult",
    "LaunchSpec",
    "RunningSubject",
    "SubjectError",
    "UnmetRequirement",
    "ValidationProvider",
]


class SubjectError(OpenEnvError, RuntimeError):
    """A package cannot be built or started, and that is its own fault.

    Attributes:
        phase: What failed: ``build``, ``start`` or ``readiness``.
        logs: The last lines that it printed.
    """

    def __init__(self, phase: str, reason: str, *, logs: str = "") -> None:
        self.phase = phase
        self.logs = logs
        super().__init__(reason)


class UnmetRequirement(OpenEnvError, RuntimeError):
    """This machine, or this provider, lacks what a package needs; nobody has done wrong.

    Attributes:
        capability: What is missing, as the report names it.
    """

    def __init__(self, capability: str, reason: str) -> None:
        self.capability = capability
        super().__init__(reason)


@dataclass(frozen=True)
class ExecResult:
    """What became of a command beside the subject.

    Attributes:
        exit_code: Its own.
        stdout: What it printed.
        stderr: Likewise.
        duration_s: Seconds that it took.
    """

    exit_code: int
    stdout: str
    stderr: str
    duration_s: float


class LaunchSpec(BaseModel):
    """What one running subject is given; nothing else is inherited, no variable and no key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_ref: str = Field(
        pattern=r"^(?:[^@\s]+@)?sha256:[0-9a-f]{64}$",
        description="The image's digest, or that of the sources where there is no image.",
    )
    resources: ResourceDeclaration = Field(description="What it may use.")
    network: NetworkPolicy = Field(description="What it may reach.")
    run_id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Names this start.")
    startup_timeout_s: float = Field(
        default=30.0, gt=0.0, le=300.0, description="Seconds until it must answer."
    )
    env_vars: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="Environment variables of its server."
    )


@runtime_checkable
class RunningSubject(Protocol):
    """A package that serves.

    Attributes:
        base_url: Where. A client in this process finds the key that it wants by itself.
    """

    base_url: str

    def inspect(self) -> dict[str, Any]:
        """What is in force, as JSON has it: identity, limits, network."""
        ...

    def logs(self, max_bytes: int = 65536) -> str:
        """The end of what it has printed."""
        ...

    def exec(self, argv: list[str], timeout_s: float) -> ExecResult:
        """Run a command where it runs; of providers that can EXEC.

        Raises:
            UnmetRequirement: Of a provider that cannot.
            ProviderError: It could not be run, or took longer.
        """
        ...

    def stop(self) -> None:
        """End it, and take away all that was made for it. Safe to repeat."""


@runtime_checkable
class ValidationProvider(Protocol):
    """Builds packages and starts them.

    Attributes:
        name: For the report.
        capabilities: What it can do.
        supported_network_modes: The modes of `NetworkPolicy` that it enforces.
    """

    name: str
    capabilities: frozenset[ProviderCapability]
    supported_network_modes: frozenset[str]

    def build(self, root: Path, execution: ExecutionDeclaration) -> str:
        """Build a package's image and give its digest.

        Raises:
            SubjectError: The package cannot be built.
            UnmetRequirement: What builds it is not there.
        """
        ...

    def start(self, spec: LaunchSpec) -> RunningSubject:
        """Start what was built, and wait until it answers.

        Raises:
            SubjectError: It ended, or did not answer in time.
            UnmetRequirement: It needs what this provider does not enforce.
        """
        ...
