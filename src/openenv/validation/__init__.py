"""Validation: checks whether an environment is fit for training, and what to fix (RFC 008).

    from openenv.validation import run_validation
    report = run_validation(Path("envs/echo_env"))
    print(report.verdict, [result.check_id for result in report.results])

`openenv validate` does the same on the command line.

A run goes level by level: collectors gather evidence (`static`, `runtime`, `semantic`, `learning`),
graders judge the evidence, and a severity policy turns the results into a verdict. This package
never imports an environment's code: packages are read as files, and played over the wire.

The package builds on `client`, `providers`, `images` and `manifest`; the commands `openenv
validate` and `openenv leaderboard` use it. Read `runner.py` first, then `context.py` (a run),
`graders.py` (evidence and checks) and `runtime/collector.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.validation.graders import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
    from openenv.validation.graders import Grader as Grader
    from openenv.validation.graders import GraderRegistry as GraderRegistry
    from openenv.validation.graders import Subject as Subject
    from openenv.validation.manifest import CapabilitiesSpec as CapabilitiesSpec
    from openenv.validation.manifest import DeclarationError as DeclarationError
    from openenv.validation.manifest import JudgePin as JudgePin
    from openenv.validation.manifest import NetworkPolicy as NetworkPolicy
    from openenv.validation.manifest import NormalizedManifest as NormalizedManifest
    from openenv.validation.manifest import OracleDeclaration as OracleDeclaration
    from openenv.validation.manifest import ResourceDeclaration as ResourceDeclaration
    from openenv.validation.manifest import RewardDeclaration as RewardDeclaration
    from openenv.validation.manifest import TaskDistributionPin as TaskDistributionPin
    from openenv.validation.manifest import TypeSpec as TypeSpec
    from openenv.validation.manifest import VerifierBinding as VerifierBinding
    from openenv.validation.parsers import Parser as Parser
    from openenv.validation.parsers import ParserRegistry as ParserRegistry
    from openenv.validation.policy import DeclarationBounds as DeclarationBounds
    from openenv.validation.policy import PolicyEntry as PolicyEntry
    from openenv.validation.policy import SeverityPolicy as SeverityPolicy
    from openenv.validation.policy import SeverityPolicyError as SeverityPolicyError
    from openenv.validation.policy import apply_policy as apply_policy
    from openenv.validation.policy import load_policy as load_policy
    from openenv.validation.providers import ExecResult as ExecResult
    from openenv.validation.providers import RunningSubject as RunningSubject
    from openenv.validation.providers import ValidationProvider as ValidationProvider
    from openenv.validation.report import CheckResult as CheckResult
    from openenv.validation.report import ValidationReport as ValidationReport
    from openenv.validation.report import write_report as write_report
    from openenv.validation.runner import Validation as Validation
    from openenv.validation.runner import run_validation as run_validation
    from openenv.validation.runner import validate as validate
    from openenv.validation.signature import UNSUPPORTED_CATEGORIES as UNSUPPORTED_CATEGORIES
    from openenv.validation.signature import WELL_KNOWN_FILES as WELL_KNOWN_FILES
    from openenv.validation.signature import SignatureError as SignatureError
    from openenv.validation.signature import UnsupportedPackageError as UnsupportedPackageError
    from openenv.validation.signature import detect_signature as detect_signature
    from openenv.validation.types import CheckStatus as CheckStatus
    from openenv.validation.types import Lane as Lane
    from openenv.validation.types import Level as Level
    from openenv.validation.types import ProviderCapability as ProviderCapability
    from openenv.validation.types import Severity as Severity
    from openenv.validation.types import SignatureKind as SignatureKind
    from openenv.validation.types import Verdict as Verdict
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
