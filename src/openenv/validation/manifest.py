"""Normalized manifests: an environment's declarations, whatever file holds them.

These are versions 1 and 2 of the normalized manifest of RFC 008; version 2 adds how to run the
environment. The declarations are those of `openenv.manifest.model`. The JSON Schemas in
``schemas/`` are generated from these models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.errors import OpenEnvError
from openenv.manifest.model import (
    CapabilitiesSpec,
    Declarations,
    ExecutionDeclaration,
    JudgePin,
    NetworkPolicy,
    OracleDeclaration,
    ResourceDeclaration,
    RewardDeclaration,
    TaskDistributionPin,
    TypeSpec,
    VerifierBinding,
    is_portable,
)
from openenv.manifest.reading import ManifestProblem
from openenv.validation.types import SignatureKind

__all__ = [
    "AnyManifest",
    "CapabilitiesSpec",
    "ExecutionDeclaration",
    "JudgePin",
    "DeclarationError",
    "NetworkPolicy",
    "NormalizedManifest",
    "NormalizedManifestV2",
    "OracleDeclaration",
    "ResourceDeclaration",
    "RewardDeclaration",
    "TaskDistributionPin",
    "TypeSpec",
    "VerifierBinding",
    "get_execution",
    "is_portable",
]


class DeclarationError(OpenEnvError, ValueError):
    """Declarations of a package that are wrong or incomplete.

    Attributes:
        errors: One sentence for each faulty field.
        remediation: What to write instead, if known.
        problems: The locations of the `errors`, in the same order; empty if unknown.
    """

    def __init__(
        self,
        errors: Sequence[str],
        *,
        remediation: str | None = None,
        problems: Sequence[ManifestProblem] = (),
    ) -> None:
        self.errors = list(errors)
        self.remediation = remediation
        self.problems = tuple(problems)
        super().__init__("; ".join(self.errors))


class _PackageIdentity(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="The package's name.")
    version: str | None = Field(default=None, description="The package's version.")
    signature: SignatureKind = Field(
        description="The format that this was read from; for the report only."
    )


class NormalizedManifest(Declarations, _PackageIdentity):
    """The declarations of a package; schema 1."""

    manifest_schema_version: Literal["1"]


class NormalizedManifestV2(Declarations, _PackageIdentity):
    """The declarations of a package, and how it is run; schema 2."""

    manifest_schema_version: Literal["2"]
    execution: ExecutionDeclaration


AnyManifest = NormalizedManifest | NormalizedManifestV2


def get_execution(manifest: AnyManifest) -> ExecutionDeclaration:
    """Return the declared way to run a package, or the defaults."""
    if isinstance(manifest, NormalizedManifestV2):
        return manifest.execution
    return ExecutionDeclaration()


def describe_plan(manifest: AnyManifest) -> str:
    """Return advice for an episode that could not begin with the probe plan."""
    return (
        f"check the reset and the actions in {get_execution(manifest).probe_path}, which says how "
        "the measured episode is played"
    )
