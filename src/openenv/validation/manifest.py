"""What an environment declares of itself, in one form whatever file it is written in.

These are the normalized manifests 1 and 2 of RFC 008: 2 adds how the environment is run. What is
declared is `openenv.manifest.declarations`. The JSON Schemas in ``schemas/`` are made from these
models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.errors import OpenEnvError
from openenv.manifest.declarations import (
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
from openenv.manifest.problems import ManifestProblem
from openenv.validation.types import SignatureKind

__all__ = [
    "AnyManifest",
    "CapabilitiesSpec",
    "ExecutionDeclaration",
    "JudgePin",
    "ManifestError",
    "NetworkPolicy",
    "NormalizedManifest",
    "NormalizedManifestV2",
    "OracleDeclaration",
    "ResourceDeclaration",
    "RewardDeclaration",
    "TaskDistributionPin",
    "TypeSpec",
    "VerifierBinding",
    "execution_of",
    "is_portable",
]


class ManifestError(OpenEnvError, ValueError):
    """A package declares something wrong, or too little.

    Attributes:
        errors: One sentence for each field.
        remediation: What to write instead; None where it is not known.
        problems: Where each of `errors` stands, in that order; empty where that is not known.
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


class _About(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="The package's name.")
    version: str | None = Field(default=None, description="The package's version.")
    signature: SignatureKind = Field(description="Where this was read; for the report only.")


class _Manifest(Declarations, _About):
    """Its name, and what it declares."""


class NormalizedManifest(_Manifest):
    """What a package declares; schema 1."""

    manifest_schema_version: Literal["1"]


class NormalizedManifestV2(_Manifest):
    """What a package declares, with how it is run; schema 2."""

    manifest_schema_version: Literal["2"]
    execution: ExecutionDeclaration


AnyManifest = NormalizedManifest | NormalizedManifestV2


def execution_of(manifest: AnyManifest) -> ExecutionDeclaration:
    """How a package is run: what it declares, or the defaults."""
    if isinstance(manifest, NormalizedManifestV2):
        return manifest.execution
    return ExecutionDeclaration()
