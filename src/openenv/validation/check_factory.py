"""Grader construction from judges: functions of the manifest and of collected evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openenv.validation.graders import FunctionGrader, Subject
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import Judgment, skip
from openenv.validation.types import Level, ProviderCapability

__all__ = ["DETERMINISM", "STARTUP", "MissingEvidence", "make_grader", "level_of"]

STARTUP, DETERMINISM = "runtime.startup", "runtime.episode_determinism"

_LEVELS = {
    "static": Level.STATIC,
    "runtime": Level.RUNTIME,
    "semantic": Level.SEMANTIC,
    "learning": Level.STATISTICAL,
}


class MissingEvidence:
    """The reasons why kinds of evidence are missing."""

    def __init__(self) -> None:
        self.reasons: dict[type, str] = {}

    def record(self, kind: type, reason: str) -> None:
        """Record why a kind of evidence is missing, unless a reason is known."""
        self.reasons.setdefault(kind, reason)


def level_of(check_id: str) -> Level:
    """Return the level of a check, which is the prefix of the check's id."""
    return _LEVELS[check_id.partition(".")[0]]


def make_grader(
    check_id: str,
    judge: Callable[..., Judgment],
    *kinds: type,
    depends_on: tuple[str, ...] = (STARTUP,),
    requires_provider: frozenset[ProviderCapability] = frozenset(),
    applies: Callable[[AnyManifest], bool] = lambda manifest: True,
) -> FunctionGrader:
    """Make a grader of a judge, which receives the check's id, the manifest and each kind of
    evidence.

    If a kind of evidence is missing, the check is skipped with the reason.
    """

    def judge_subject(subject: Subject) -> Judgment:
        found: list[Any] = [subject.evidence.get(kind) for kind in kinds]
        for kind, piece in zip(kinds, found, strict=True):
            if piece is None:
                return skip(_why(subject, kind))
        return judge(subject.manifest, *found)

    return FunctionGrader(
        check_id,
        level_of(check_id),
        judge_subject,
        depends_on=depends_on,
        requires_provider=requires_provider,
        applies=applies,
    )


def _why(subject: Subject, kind: type) -> str:
    unseen = subject.evidence.get(MissingEvidence)
    reason = unseen.reasons.get(kind) if unseen is not None else None
    return reason or f"{kind.__name__} was not collected"
