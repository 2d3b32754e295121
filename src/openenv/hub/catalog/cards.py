"""The models of a catalog: cards of environments and the snapshot of a repository; catalog files.

A file that was changed after it was written is rejected.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv._internal.json import read_json
from openenv._internal.replacing import replace_text
from openenv.errors import OpenEnvError

__all__ = [
    "FILTERS",
    "PROFILE_VERSION",
    "CatalogChanges",
    "CatalogError",
    "CatalogSnapshot",
    "EnvironmentCard",
    "CatalogIssue",
    "ModelCard",
    "ModelField",
    "SearchMatch",
    "compare_catalogs",
    "load_catalog",
    "write_catalog",
]

PROFILE_VERSION = "1"
"""Version of the catalog file format."""

FILTERS = ("license", "provider", "artifact_availability", "name", "tags", "type")


class CatalogError(OpenEnvError, ValueError):
    """Raised if a catalog cannot be built or read; the message says why."""


class _CatalogModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelField(_CatalogModel):
    """A field of an action or an observation, as written in source."""

    name: str
    type: str
    default: str | None = Field(default=None, description="None for a required field.")
    description: str = ""


class ModelCard(_CatalogModel):
    """An action or an observation model."""

    name: str
    fields: tuple[ModelField, ...] = ()


class EnvironmentCard(_CatalogModel):
    """The description of an environment, from files only."""

    identifier: str = Field(description="Namespace and directory name.")
    name: str = Field(description="Name in the manifest.")
    title: str = Field(description="Title of the README.")
    description: str
    type: str
    version: str | None = None
    license: str = Field(default="unknown", description="SPDX identifier.")
    author: str | None = None
    tags: tuple[str, ...] = ()
    provider: str = Field(description="Host of the repository: github, gitlab, huggingface, git.")
    artifact_availability: Literal["resolvable", "unknown"] = Field(
        description="Whether the repository's address can be fetched."
    )
    path: str = Field(description="Directory in the repository.")
    package: str | None = Field(default=None, description="Name of the distribution.")
    action: ModelCard | None = None
    observation: ModelCard | None = None
    tools: tuple[str, ...] = ()
    tasks: dict[str, int] = Field(default_factory=dict, description="Number of tasks by split.")
    verified: str | None = Field(default=None, description="Text of the badge, such as pass 100.")
    readme: str | None = Field(default=None, description="Path of the README in the repository.")
    picture: str | None = Field(
        default=None, description="Path of the first picture in the README."
    )


class CatalogIssue(_CatalogModel):
    """A directory without a card, and the reason."""

    path: str
    message: str


class CatalogSnapshot(_CatalogModel):
    """The environments of a repository at one commit."""

    profile_version: str = PROFILE_VERSION
    publisher: str
    namespace: str
    repository_uri: str
    revision: str = Field(description="The commit.")
    root: str
    entries: tuple[EnvironmentCard, ...]
    issues: tuple[CatalogIssue, ...] = ()
    digest: str = Field(default="", description="SHA-256 of all other fields.")

    def compute_digest(self) -> str:
        """Compute the digest of the content."""
        content = self.model_dump(mode="json", exclude={"digest"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


class CatalogChanges(_CatalogModel):
    """The differences between two catalogs of a repository."""

    added: tuple[EnvironmentCard, ...] = ()
    withdrawn: tuple[EnvironmentCard, ...] = ()
    changed: tuple[EnvironmentCard, ...] = Field(
        default=(), description="New state of changed cards."
    )


class SearchMatch(_CatalogModel):
    """A search result."""

    entry: EnvironmentCard
    score: float = Field(description="Relevance; above 0.")


# ------------------------------------------------------------------ files

MAX_BYTES = 16 * 2**20


def load_catalog(path: Path | str) -> CatalogSnapshot:
    """Read a catalog, and verify its digest.

    Raises:
        CatalogError: The file cannot be read, has another format, or was changed.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CatalogError(f"{path} is larger than {MAX_BYTES // 2**20} MiB")
        content = read_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CatalogError(f"{path} is not valid JSON: {error}") from error
    version = content.get("profile_version") if isinstance(content, dict) else None
    if version != PROFILE_VERSION:
        raise CatalogError(
            f"{path} has profile_version {version!r:.100}; expected {PROFILE_VERSION!r}"
        )
    try:
        snapshot = CatalogSnapshot.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CatalogError(f"{path} is not a catalog: {where}: {first['msg']}") from error
    if snapshot.digest != (digest := snapshot.compute_digest()):
        raise CatalogError(
            f"{path} was changed after it was made: its digest is {digest}, and it says "
            f"{snapshot.digest or 'none'}"
        )
    return snapshot


def write_catalog(snapshot: CatalogSnapshot, path: Path | str) -> None:
    """Write a catalog atomically."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, snapshot.model_dump_json(indent=2) + "\n")


def compare_catalogs(previous: CatalogSnapshot, current: CatalogSnapshot) -> CatalogChanges:
    """Return the changes from an older catalog of the same repository.

    Raises:
        CatalogError: The repositories or the publishers differ.
    """
    whose = [(one.publisher, one.repository_uri, one.root) for one in (previous, current)]
    if whose[0] != whose[1]:
        raise CatalogError(f"catalogs of {whose[0]} and {whose[1]} cannot be compared")
    before = {card.identifier: card for card in previous.entries}
    now = {card.identifier: card for card in current.entries}
    return CatalogChanges(
        added=tuple(card for name, card in now.items() if name not in before),
        withdrawn=tuple(card for name, card in before.items() if name not in now),
        changed=tuple(card for name, card in now.items() if before.get(name, card) != card),
    )
