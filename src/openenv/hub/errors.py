"""Errors of publishing environments on the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.hub.secrets import SecretFinding


class HubError(OpenEnvError, RuntimeError):
    """Raised if the Hub did not fulfill a request.

    Attributes:
        hint: Advice for the user; None if there is none.
        status: The HTTP status; None without a response.
    """

    def __init__(self, message: str, *, hint: str | None = None, status: int | None = None) -> None:
        self.hint = hint
        self.status = status
        super().__init__(redact(message))


class AccessError(HubError):
    """Raised if the token is missing, invalid, or lacks the permission."""


class QuotaError(HubError):
    """Raised if the account's storage, hardware, credit or request rate is used up."""


class RepositoryExistsError(HubError):
    """Raised if a repository of the same name exists."""


class RepositoryNotFoundError(HubError):
    """Raised if the Space or revision does not exist, or the token may not see it."""


class HubUnreachableError(HubError):
    """Raised if the Hub does not answer, or the connection broke."""


class StructureError(OpenEnvError, ValueError):
    """Raised if a directory is not laid out as an environment.

    Attributes:
        missing: The missing files; empty if something else is wrong.
        hint: Advice for the user.
        is_environment: Whether the directory has an ``openenv.yaml``.
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
    """Raised for secrets in the files to upload; the text says where, and never shows them.

    Attributes:
        findings: The places of the secrets.
    """

    def __init__(self, findings: Sequence[SecretFinding]) -> None:
        self.findings = tuple(findings)
        lines = "\n".join(f"  {one}" for one in findings)
        super().__init__(f"the upload seems to hold secrets:\n{lines}")
