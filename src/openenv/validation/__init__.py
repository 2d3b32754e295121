"""Validation: whether an environment is fit to be learned in, and what to mend (RFC 008).

    from openenv.validation import run_validation
    report = run_validation(Path("envs/echo_env"))
    print(report.verdict, [result.check_id for result in report.results])

`openenv validate` is the same, for the command line.
"""

from __future__ import annotations

from openenv.validation.graders import ENTRY_POINT_GROUP, Grader, GraderRegistry, Subject
from openenv.validation.manifest import (
    CapabilitiesSpec,
    JudgePin,
    ManifestError,
    NetworkPolicy,
    NormalizedManifest,
    OracleDeclaration,
    ResourceDeclaration,
    RewardDeclaration,
    TaskDistributionPin,
    TypeSpec,
    VerifierBinding,
)
from openenv.validation.parsers import Parser, ParserRegistry
from openenv.validation.policy import (
    DeclarationBounds,
    PolicyEntry,
    PolicyError,
    SeverityPolicy,
    apply_policy,
    load_policy,
)
from openenv.validation.providers import ExecResult, RunningSubject, ValidationProvider
from openenv.validation.report import CheckResult, ValidationReport, write_report
from openenv.validation.runner import Validation, run_validation, validate
from openenv.validation.signature import (
    UNSUPPORTED_CATEGORIES,
    WELL_KNOWN_FILES,
    SignatureError,
    UnsupportedPackageError,
    detect_signature,
)
from openenv.validation.types import (
    CheckStatus,
    Lane,
    Level,
    ProviderCapability,
    Severity,
    SignatureKind,
    Verdict,
)

__all__ = [
    "ENTRY_POINT_GROUP",
    "UNSUPPORTED_CATEGORIES",
    "WELL_KNOWN_FILES",
    "CapabilitiesSpec",
    "CheckResult",
    "CheckStatus",
    "DeclarationBounds",
    "ExecResult",
    "Grader",
    "GraderRegistry",
    "JudgePin",
    "Lane",
    "Level",
    "ManifestError",
    "NetworkPolicy",
    "NormalizedManifest",
    "OracleDeclaration",
    "Parser",
    "ParserRegistry",
    "PolicyEntry",
    "PolicyError",
    "ProviderCapability",
    "ResourceDeclaration",
    "RewardDeclaration",
    "RunningSubject",
    "Severity",
    "SeverityPolicy",
    "SignatureError",
    "SignatureKind",
    "Subject",
    "TaskDistributionPin",
    "TypeSpec",
    "UnsupportedPackageError",
    "Validation",
    "ValidationProvider",
    "ValidationReport",
    "Verdict",
    "VerifierBinding",
    "apply_policy",
    "detect_signature",
    "load_policy",
    "run_validation",
    "validate",
    "write_report",
]
