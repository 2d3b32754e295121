"""What a catalogue holds: a card for each environment, and what the repository was."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
]

PROFILE_VERSION = "1"
"""The form of a catalogue's file."""

FILTERS = ("license", "provider", "artifact_availability", "name", "tags", "type")


class CatalogError(OpenEnvError, ValueError):
    """A catalogue cannot be made or read; the text says why."""


class _CatalogModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelField(_CatalogModel):
    """A field of an action or an observation, as its source says."""

    name: str
    type: str
    default: str | None = Field(default=None, description="None where it is required.")
    description: str = ""


class ModelCard(_CatalogModel):
    """An action or an observation."""

    name: str
    fields: tuple[ModelField, ...] = ()


class EnvironmentCard(_CatalogModel):
    """One environment, as its files describe it."""

    identifier: str = Field(description="Its namespace and its directory's name.")
    name: str = Field(description="Of its manifest.")
    title: str = Field(description="Of its README.")
    description: str
    type: str
    version: str | None = None
    license: str = Field(default="unknown", description="By SPDX.")
    author: str | None = None
    tags: tuple[str, ...] = ()
    provider: str = Field(description="Where its repository is: github, gitlab, huggingface, git.")
    artifact_availability: Literal["resolvable", "unknown"] = Field(
        description="Whether the repository's address says where to get it."
    )
    path: str = Field(description="Its directory in the repository.")
    package: str | None = Field(default=None, description="Its distribution.")
    action: ModelCard | None = None
    observation: ModelCard | None = None
    tools: tuple[str, ...] = ()
    tasks: dict[str, int] = Field(default_factory=dict, description="Number of tasks by split.")
    verified: str | None = Field(default=None, description="What its badge says, such as pass 100.")
    readme: str | None = Field(default=None, description="Its README, in the repository.")
    picture: str | None = Field(default=None, description="The first picture that README shows.")


class CatalogIssue(_CatalogModel):
    """A directory that gave no card, and why."""

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
    digest: str = Field(default="", description="SHA-256 of all the rest.")

    def counted(self) -> str:
        """The digest that it should have."""
        content = self.model_dump(mode="json", exclude={"digest"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


class CatalogChanges(_CatalogModel):
    """What a newer catalogue has, has no more, and says otherwise."""

    added: tuple[EnvironmentCard, ...] = ()
    withdrawn: tuple[EnvironmentCard, ...] = ()
    changed: tuple[EnvironmentCard, ...] = Field(default=(), description="As they are now.")


class SearchMatch(_CatalogModel):
    """What a search found."""

    entry: EnvironmentCard
    score: float = Field(description="How well it fits; above 0.")
