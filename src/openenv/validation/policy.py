"""Severity policies: which failed checks fail a package. Each is a versioned file in ``policies/``.

``v1`` and ``v2`` are the public policies, for packages that are only read and for packages that are
run. ``v3`` is our own: it adds checks on reward hacking, isolation, load and learning to ``v2``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv.errors import OpenEnvError
from openenv.validation.report import CheckResult
from openenv.validation.types import CheckStatus, Lane, Level, Severity, Verdict


class SeverityPolicyError(OpenEnvError, ValueError):
    """A policy that does not exist, is not valid, or does not cover a check."""


class _PolicyModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PolicyEntry(_PolicyModel):
    """The severity of a check."""

    check_id: str = Field(description="The check's id, such as static.layout.")
    level: Level = Field(description="The check's level.")
    lane: Lane = Field(description="The owner of the check.")
    severity: Severity = Field(description="The effect of a failure on the verdict.")


class DeclarationBounds(_PolicyModel):
    """The limits of a package's declarations."""

    max_oracle_tolerance: float = Field(description="A share of the reward's range.")
    min_floor_margin: float = Field(description="A share of the reward's range.")
    max_variance_tolerance: float = Field(description="In reward squared.")
    max_episode_timeout_s: float = Field(description="Seconds.")


class SeverityPolicy(_PolicyModel):
    """The severity of each check, and the limits of declarations."""

    policy_version: str = Field(description="The version, such as v3.")
    entries: list[PolicyEntry] = Field(description="The entry of each check.")
    bounds: DeclarationBounds

    def entries_for_lane(self, lane: Lane) -> dict[str, PolicyEntry]:
        """Return the entries of a lane by check id."""
        return {entry.check_id: entry for entry in self.entries if entry.lane == lane}


def policy_versions() -> list[str]:
    """Return the versions of the built-in policies, oldest first."""
    names = (file.name for file in resources.files("openenv.validation.policies").iterdir())
    return sorted(name[9:-5] for name in names if name.startswith("severity-"))


def load_policy(version: str = "v1") -> SeverityPolicy:
    """Load a built-in policy.

    Raises:
        SeverityPolicyError: The version is unknown.
    """
    known = policy_versions()
    if version not in known:
        raise SeverityPolicyError(
            f"unknown severity policy {version!r}; expected one of {', '.join(known)}"
        )
    file = resources.files("openenv.validation.policies") / f"severity-{version}.json"
    return SeverityPolicy.model_validate_json(file.read_bytes())


def read_policy(path: Path) -> SeverityPolicy:
    """Read a policy from a file in the format of the files in ``policies/``.

    Raises:
        SeverityPolicyError: The file is missing or not valid.
    """
    try:
        return SeverityPolicy.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SeverityPolicyError(f"the policy {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise SeverityPolicyError(f"{path} is not a severity policy: {error}") from error


def add_entries(policy: SeverityPolicy, more: Iterable[PolicyEntry]) -> SeverityPolicy:
    """Return the policy with the entries added whose checks it does not cover."""
    known = {entry.check_id for entry in policy.entries}
    new = [entry for entry in more if entry.check_id not in known]
    return policy.model_copy(update={"entries": [*policy.entries, *new]})


def apply_policy(results: Sequence[CheckResult], policy: SeverityPolicy, lane: Lane) -> Verdict:
    """Turn results into a verdict.

    A failed check fails the verdict if its severity is FAIL, and otherwise warns. An error fails
    with any severity, because the check could not be judged. A skipped check warns.

    Raises:
        SeverityPolicyError: The policy has no entry for a result in this lane.
    """
    entries = policy.entries_for_lane(lane)
    verdicts = [_verdict(result, entries, policy, lane) for result in results]
    worst = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
    return max(verdicts, key=worst.index, default=Verdict.PASS)


def _verdict(
    result: CheckResult, entries: dict[str, PolicyEntry], policy: SeverityPolicy, lane: Lane
) -> Verdict:
    entry = entries.get(result.check_id)
    if entry is None:
        raise SeverityPolicyError(
            f"policy {policy.policy_version} has no entry for {result.check_id!r} in the lane "
            f"{lane.value}"
        )
    if result.status is CheckStatus.PASS:
        return Verdict.PASS
    if result.status is CheckStatus.SKIP:
        return Verdict.WARN
    if result.status is CheckStatus.ERROR or entry.severity is Severity.FAIL:
        return Verdict.FAIL
    return Verdict.WARN
