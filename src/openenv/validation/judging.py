"""Checks whose judges are functions of the manifest and of what was collected, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openenv.validation.graders import Check, Subject
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import CheckResult, skipped
from openenv.validation.types import Level, ProviderCapability

__all__ = ["DETERMINISM", "STARTUP", "Unseen", "judged", "level_of"]

STARTUP, DETERMINISM = "runtime.startup", "runtime.episode_determinism"

_LEVELS = {
    "static": Level.STATIC,
    "runtime": Level.RUNTIME,
    "semantic": Level.SEMANTIC,
    "learning": Level.STATISTICAL,
}


class Unseen:
    """Why something was not collected, by its kind: evidence that there is no evidence."""

    def __init__(self) -> None:
        self.reasons: dict[type, str] = {}

    def note(self, kind: type, reason: str) -> None:
        """Say why there is nothing of a kind."""
        self.reasons.setdefault(kind, reason)


def level_of(check_id: str) -> Level:
    """The level of a check, which its name begins with."""
    return _LEVELS[check_id.partition(".")[0]]


def judged(
    check_id: str,
    judge: Callable[..., CheckResult],
    *kinds: type,
    depends_on: tuple[str, ...] = (STARTUP,),
    requires_provider: frozenset[ProviderCapability] = frozenset(),
    applies: Callable[[AnyManifest], bool] = lambda manifest: True,
) -> Check:
    """A check of a judge, which is called with the check, the manifest and evidence of each kind.

    Where a kind was not collected the check is skipped, and says why.
    """

    def judge_subject(subject: Subject) -> CheckResult:
        found: list[Any] = [subject.evidence.get(kind) for kind in kinds]
        for kind, piece in zip(kinds, found, strict=True):
            if piece is None:
                return skipped(check_id, _why(subject, kind))
        return judge(check_id, subject.manifest, *found)

    return Check(
        check_id,
        level_of(check_id),
        judge_subject,
        depends_on=depends_on,
        requires_provider=requires_provider,
        applies=applies,
    )


def _why(subject: Subject, kind: type) -> str:
    unseen = subject.evidence.get(Unseen)
    reason = unseen.reasons.get(kind) if unseen is not None else None
    return reason or f"{kind.__name__} was not collected"
