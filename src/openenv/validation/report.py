"""What a validation has found: results, and the report that holds them (RFC 008).

A report is JSON of schema 1, where only the package was read, or 2. Hubs and the public package
read the same. What does not fit there (curves, scores, transcripts) lies in a directory beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv._internal.json import read_json
from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError
from openenv.validation.manifest import AnyManifest, NormalizedManifest
from openenv.validation.types import CheckStatus, Lane, Level, SignatureKind, Verdict

__all__ = [
    "AnyReport",
    "CheckResult",
    "ReportError",
    "ValidationReport",
    "ValidationReportV2",
    "errored",
    "failed",
    "passed",
    "read_report",
    "skipped",
    "write_report",
]


class ReportError(OpenEnvError, ValueError):
    """A file is no report; the text says where and why."""


class CheckResult(BaseModel):
    """How one check ended."""

    model_config = ConfigDict(extra="forbid")

    check_id: str = Field(pattern=r"^[a-z_]+\.[a-z_]+$", description="Such as static.layout.")
    status: CheckStatus = Field(description="How it ended.")
    measured: dict[str, Any] = Field(default_factory=dict, description="What it measured.")
    evidence: list[str] = Field(default_factory=list, description="What it saw, in words.")
    remediation: str | None = Field(default=None, description="What to write to make it pass.")
    duration_s: float = Field(ge=0.0, description="Seconds that it took.")


def passed(check_id: str, *evidence: str, **measured: Any) -> CheckResult:
    """The result of a check that holds."""
    return _result(check_id, CheckStatus.PASS, evidence, measured)


def failed(
    check_id: str, *evidence: str, remediation: str | None = None, **measured: Any
) -> CheckResult:
    """The result of a check that does not hold.

    Args:
        check_id: Of the check.
        *evidence: What was seen, one sentence each.
        remediation: Exactly what to write, and where.
        **measured: Values, as JSON has them.
    """
    return _result(check_id, CheckStatus.FAIL, evidence, measured, remediation)


def skipped(
    check_id: str, reason: str, *, remediation: str | None = None, **measured: Any
) -> CheckResult:
    """The result of a check that could not be measured: it counts as not shown, never as passed."""
    return _result(check_id, CheckStatus.SKIP, (reason,), measured, remediation)


def errored(check_id: str, *evidence: str) -> CheckResult:
    """The result of a check that is itself at fault."""
    return _result(check_id, CheckStatus.ERROR, evidence, {})


def _result(
    check_id: str,
    status: CheckStatus,
    evidence: tuple[str, ...],
    measured: dict[str, Any],
    remediation: str | None = None,
) -> CheckResult:
    return CheckResult(
        check_id=check_id,
        status=status,
        measured=measured,
        evidence=list(evidence),
        remediation=remediation,
        duration_s=0.0,  # who runs it has the clock
    )


class _Report(BaseModel):
    model_config = ConfigDict(extra="forbid")

    target: str = Field(description="What was validated.")
    source_digest: str = Field(description="SHA-256 of its files.")
    signature: SignatureKind = Field(description="The file that it was recognized by.")
    policy_version: str = Field(description="The severity policy.")
    lane: Lane = Field(description="Whose checks these are.")
    levels_run: list[Level] = Field(description="The levels that were measured.")
    results: list[CheckResult] = Field(description="Of each check, in the order they ran.")
    verdict: Verdict = Field(description="What the policy makes of them.")


class ValidationReport(_Report):
    """A report of the package alone; schema 1."""

    report_schema_version: Literal["1"]
    manifest: NormalizedManifest | None = Field(description="None where it cannot be read.")


class ValidationReportV2(_Report):
    """A report of a package that was run; schema 2."""

    report_schema_version: Literal["2"]
    manifest: AnyManifest | None = Field(description="None where it cannot be read.")


AnyReport = ValidationReport | ValidationReportV2

_SCHEMAS: dict[str, type[ValidationReport] | type[ValidationReportV2]] = {
    "1": ValidationReport,
    "2": ValidationReportV2,
}


def write_report(report: AnyReport, path: Path | None = None) -> str:
    """Write a report as JSON, without what is known to be secret.

    Args:
        report: What to write.
        path: The file; None only returns the text.

    Returns:
        The text.
    """
    text = redact(report.model_dump_json(indent=2)) + "\n"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return text


def read_report(path: Path) -> AnyReport:
    """Read a report from its file.

    Raises:
        ReportError: There is none, or it is none.
    """

    try:
        content = read_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path} is no JSON: {error}") from error
    version = content.get("report_schema_version") if isinstance(content, dict) else None
    if not isinstance(version, str) or version not in _SCHEMAS:
        known = " or ".join(_SCHEMAS)
        raise ReportError(f"{path} has report_schema_version {version!r:.100}; expected {known}")
    try:
        return _SCHEMAS[version].model_validate(content)
    except ValidationError as error:
        raise ReportError(f"{path} is no report: {error}") from error
