"""Validation: is an environment fit to train in, and what should be fixed (RFC 008)?

    from openenv.validation import run_validation
    report = run_validation(Path("envs/echo_env"))
    print(report.verdict, [result.check_id for result in report.results])

`openenv validate` does the same on the command line.

A run goes level by level: collectors gather evidence (`static`, `runtime`, `semantic`, `learning`),
graders judge it, and a severity policy turns the results into a verdict. Nothing in this package
imports an environment's code: packages are read as files, and played over the wire.

Below: `client`, `providers`, `images`, `manifest`. Above: the commands `openenv validate` and
`openenv leaderboard`. Read `runner.py` first, then `context.py` (a run), `graders.py` (evidence and
checks) and `runtime/collector.py`.
"""

from __future__ import annotations

from openenv.validation.graders import ENTRY_POINT_GROUP, Grader, GraderRegistry, Subject
from openenv.validation.manifest import (
    CapabilitiesSpec,
    DeclarationError,
    JudgePin,
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
    SeverityPolicy,
    SeverityPolicyError,
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
    "DeclarationError",
    "NetworkPolicy",
    "NormalizedManifest",
    "OracleDeclaration",
    "Parser",
    "ParserRegistry",
    "PolicyEntry",
    "SeverityPolicyError",
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
