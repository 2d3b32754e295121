"""What goes wrong between an environment's directory and the Hub.

HubError                     what the Hub, or the way to it, refuses
+-- AccessError              the token is none, is wrong, or may not do that
+-- QuotaError               the account's storage, hardware or credit does not suffice
+-- TakenError               the name is taken
+-- NotThereError            there is no such Space or revision, or it is not to be seen
+-- UnreachableError         nobody answers, or the connection broke
StructureError               the directory is not laid out as an environment
SecretsFoundError            what would be uploaded holds secrets
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.hub.secrets import Finding

__all__ = [
    "AccessError",
    "HubError",
    "NotThereError",
    "QuotaError",
    "SecretsFoundError",
    "StructureError",
    "TakenError",
    "UnreachableError",
]


class HubError(OpenEnvError, RuntimeError):
    """The Hub did not do what it was asked for.

    Attributes:
        hint: What to do about it; None where nobody knows.
        status: The status of HTTP; None where there was no answer.
    """

    def __init__(self, message: str, *, hint: str | None = None, status: int | None = None) -> None:
        self.hint = hint
        self.status = status
        super().__init__(redact(message))


class AccessError(HubError):
    """There is no token, or it is wrong, or it may not do that."""


class QuotaError(HubError):
    """The account's storage, hardware, credit or rate does not suffice."""


class TakenError(HubError):
    """There is a repository of that name already."""


class NotThereError(HubError):
    """There is no such Space or revision, or this token may not see it."""


class UnreachableError(HubError):
    """Nobody answers, or the connection broke."""


class StructureError(OpenEnvError, ValueError):
    """A directory is not laid out as an environment.

    Attributes:
        missing: The files that are not there; empty where something else is wrong.
        hint: What to do about it.
        is_environment: It has an ``openenv.yaml``.
    """

    def __init__(
        self,
        message: str,
        *,
        missing: Sequence[str] = (),
        hint: str | None = None,
        is_environment: bool = True,
    ) -> None:
        self.missing = tuple(missing)
        self.hint = hint
        self.is_environment = is_environment
        super().__init__(message)


class SecretsFoundError(OpenEnvError, ValueError):
    """What would be uploaded holds secrets; the text says where, and never what they are.

    Attributes:
        findings: Where they are.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        lines = "\n".join(f"  {one}" for one in findings)
        super().__init__(f"what looks like a secret is in what would be uploaded:\n{lines}")
