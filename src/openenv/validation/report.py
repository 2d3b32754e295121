"""Results and reports of validations (RFC 008).

A report is JSON in schema 1 if the package was only read, and in schema 2 otherwise. Hubs and the
public package read both. Curves, scores and transcripts are in a directory next to the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv._internal.json import read_json
from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError
from openenv.validation.manifest import AnyManifest, NormalizedManifest
from openenv.validation.types import CheckStatus, Lane, Level, SignatureKind, Verdict

QUOTED_FAULTS = 5


class ReportError(OpenEnvError, ValueError):
    """A file that is not a report; the message says where and why."""


class CheckResult(BaseModel):
    """The result of a check."""

    model_config = ConfigDict(extra="forbid")

    check_id: str = Field(pattern=r"^[a-z_]+\.[a-z_]+$", description="The check's id.")
    status: CheckStatus = Field(description="The outcome.")
    measured: dict[str, Any] = Field(default_factory=dict, description="Measured values.")
    evidence: list[str] = Field(default_factory=list, description="Findings, in words.")
    remediation: str | None = Field(default=None, description="How to make the check pass.")
    duration_s: float = Field(ge=0.0, description="Duration in seconds.")


@dataclass(frozen=True)
class Judgment:
    """A judge's decision on a check, to which the grader adds the check's id."""

    status: CheckStatus
    evidence: tuple[str, ...] = ()  # findings, one sentence each
    measured: Mapping[str, Any] = field(default_factory=dict)  # values as JSON data
    remediation: str | None = None  # what to write, and where

    def result_of(self, check_id: str) -> CheckResult:
        """Return the result of a check; the runner sets the duration."""
        return CheckResult(
            check_id=check_id,
            status=self.status,
            measured=dict(self.measured),
            evidence=list(self.evidence),
            remediation=self.remediation,
            duration_s=0.0,
        )


def accept(*evidence: str, **measured: Any) -> Judgment:
    """Pass a check."""
    return Judgment(CheckStatus.PASS, evidence, measured)


def reject(*evidence: str, remediation: str | None = None, **measured: Any) -> Judgment:
    """Fail a check."""
    return Judgment(CheckStatus.FAIL, evidence, measured, remediation)


def conclude(wrong: Sequence[str], cure: str, *evidence: str, **measured: Any) -> Judgment:
    """Fail a check if anything is wrong, quoting the first five faults; otherwise pass it."""
    if wrong:
        return reject(*wrong[:QUOTED_FAULTS], remediation=cure, **measured)
    return accept(*evidence, **measured)


def conclude_problems(
    problems: Iterable[tuple[str, str]], *evidence: str, where: str = "", **measured: Any
) -> Judgment:
    """Fail a check if there are problems, each with a cure; otherwise pass it."""
    if not (found := list(problems)):
        return accept(*evidence, **measured)
    cures = "; ".join(dict.fromkeys(cure for _, cure in found))
    return reject(*(what for what, _ in found), remediation=where + cures, **measured)


def skip(reason: str, *, remediation: str | None = None, **measured: Any) -> Judgment:
    """Skip a check that could not be measured, which counts as not passed."""
    return Judgment(CheckStatus.SKIP, (reason,), measured, remediation)


class _ReportBase(BaseModel):
    model_config = ConfigDict(extra="forbid")

    target: str = Field(description="The validated target.")
    source_digest: str = Field(description="SHA-256 of the sources.")
    signature: SignatureKind = Field(description="The file that identifies the format.")
    policy_version: str = Field(description="The severity policy's version.")
    lane: Lane = Field(description="The owner of the checks.")
    levels_run: list[Level] = Field(description="The levels that were measured.")
    results: list[CheckResult] = Field(description="The results, in order of execution.")
    verdict: Verdict = Field(description="The policy's verdict.")


class ValidationReport(_ReportBase):
    """A report on a package that was only read; schema 1."""

    report_schema_version: Literal["1"]
    manifest: NormalizedManifest | None = Field(description="None if it cannot be read.")


class ValidationReportV2(_ReportBase):
    """A report on a package that was run; schema 2."""

    report_schema_version: Literal["2"]
    manifest: AnyManifest | None = Field(description="None if it cannot be read.")


AnyReport = ValidationReport | ValidationReportV2

_SCHEMAS: dict[str, type[AnyReport]] = {"1": ValidationReport, "2": ValidationReportV2}


def write_report(report: AnyReport, path: Path | None = None) -> str:
    """Return a report as JSON without known secrets, and write the JSON to `path` if given."""
    text = redact(report.model_dump_json(indent=2)) + "\n"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return text


def read_report(path: Path) -> AnyReport:
    """Read a report from a file.

    Raises:
        ReportError: The file is missing or not a report.
    """
    try:
        content = read_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path} is not valid JSON: {error}") from error
    version = content.get("report_schema_version") if isinstance(content, dict) else None
    if not isinstance(version, str) or version not in _SCHEMAS:
        known = " or ".join(_SCHEMAS)
        raise ReportError(f"{path} has report_schema_version {version!r:.100}; expected {known}")
    try:
        return _SCHEMAS[version].model_validate(content)
    except ValidationError as error:
        raise ReportError(f"{path} is not a report: {error}") from error
