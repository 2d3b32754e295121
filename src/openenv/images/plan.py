"""What an image of an environment is to be: read from its directory, before anything is built."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openenv.images.context import Contents, read_contents
from openenv.images.dockerfile import Dockerfile
from openenv.images.errors import BuildError
from openenv.manifest import (
    MANIFEST,
    ManifestError,
    image_name,
    package_name,
    read_manifest,
    short_name,
)

__all__ = ["Plan", "default_tags", "read_plan", "workspace_of"]

PLACES = ("server/Dockerfile", "Dockerfile")
# The time of everything in an image whose sources have none: the 2nd of February 2020, as in wheels
# of hatchling.
NO_TIME = 1580601600
GIT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Plan:
    """What is to be built, and from what.

    Attributes:
        environment: The environment's directory.
        name: What it is called.
        package: The name of its Python package.
        contents: What goes into the build's context.
        dockerfile: How it is built.
        workspace: The checkout of OpenEnv that the environment lies in, whose source goes into the
            image; None for one that stands alone.
        arguments: Build arguments.
        labels: Of the image.
        epoch_s: The time of everything in it, in seconds since 1970.
        project: The environment's ``pyproject.toml``.
    """

    environment: Path
    name: str
    package: str
    contents: Contents
    dockerfile: Dockerfile
    workspace: Path | None
    arguments: Mapping[str, str]
    labels: Mapping[str, str]
    epoch_s: int
    project: Mapping[str, Any] = field(repr=False)

    @property
    def extras(self) -> str:
        """The extras of its package that are installed, with commas: what ``ARG EXTRAS`` says."""
        return self.arguments.get("EXTRAS") or self.dockerfile.arguments().get("EXTRAS") or ""

    def contents_of_environment(self) -> Contents:
        """What of the environment's own directory goes into its wheel."""
        if self.contents.root == self.environment:
            return self.contents
        return read_contents(self.environment)

    @property
    def bases(self) -> list[str]:
        """The images that it starts from."""
        return self.dockerfile.bases(self.arguments)


def read_plan(
    environment: Path,
    *,
    default_dockerfile: str,
    dockerfile: Path | None = None,
    context: Path | None = None,
    base: str | None = None,
    arguments: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Plan:
    """Read what the image of an environment is to be.

    Args:
        environment: Its directory, with an ``openenv.yaml``.
        default_dockerfile: The text for one that has no Dockerfile of its own; ``__ENV_NAME__`` in
            it stands for the package.
        dockerfile: By default ``server/Dockerfile`` or ``Dockerfile`` of the directory.
        context: The directory that the image is built from; by default the environment's.
        base: The image that it starts from: the Dockerfile's ``ARG BASE``.
        arguments: Other build arguments.
        labels: For the image, before our own.

    Raises:
        BuildError: Something of it is not there, cannot be read, or does not fit.
    """
    environment = environment.resolve()
    try:
        manifest = read_manifest(environment)
    except ManifestError as error:
        raise BuildError(str(error)) from error
    if manifest is None:
        raise BuildError(
            f"{environment} has no {MANIFEST}, so it is no environment",
            hint="name the directory of one: openenv build DIRECTORY",
        )
    package = package_name(manifest) or environment.name.replace("-", "_")
    found = _dockerfile(
        environment, dockerfile, default_dockerfile.replace("__ENV_NAME__", package)
    )
    given = _arguments(found, package, base, arguments or {})
    workspace = workspace_of(environment)
    if "BUILD_MODE" in found.arguments():
        given.setdefault("BUILD_MODE", "standalone" if workspace is None else "in-repo")
    if "ENV_NAME" in found.arguments():
        given.setdefault("ENV_NAME", package)
    root = (context or environment).resolve()
    if not root.is_dir():
        raise BuildError(f"{root} is no directory, so it cannot be the context of a build")
    own = Path(f"{dockerfile or environment / found.source}.dockerignore")
    epoch_s = _epoch(environment)
    given["SOURCE_DATE_EPOCH"] = given.get("SOURCE_DATE_EPOCH", str(epoch_s))
    project = _project(environment)
    return Plan(
        environment=environment,
        name=str(manifest.get("name") or environment.name),
        package=package,
        contents=read_contents(root, own if own.is_file() else None),
        dockerfile=found,
        workspace=workspace,
        arguments=given,
        labels={**_labels(environment, manifest, project), **(labels or {})},
        epoch_s=int(given["SOURCE_DATE_EPOCH"]),
        project=project,
    )


def default_tags(plan: Plan) -> tuple[str, ...]:
    """The names of an image that is given none: AutoEnv's, and that of the public package."""
    return image_name(plan.name), f"openenv-{short_name(plan.environment.name)}:latest"


# ------------------------------------------------------------------ the Dockerfile


def _dockerfile(environment: Path, told: Path | None, default: str) -> Dockerfile:
    try:
        if told is not None:
            return Dockerfile(told.read_text(encoding="utf-8"), str(told))
        for place in PLACES:
            if (environment / place).is_file():
                return Dockerfile((environment / place).read_text(encoding="utf-8"), place)
    except (OSError, UnicodeDecodeError) as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise BuildError(
            f"the Dockerfile {told or environment} {why}",
            hint=f"without --dockerfile it is {' or '.join(PLACES)} of the environment, or ours",
        ) from error
    return Dockerfile(default, "the one of `openenv init`, as it has none of its own")


def _arguments(
    dockerfile: Dockerfile, package: str, base: str | None, told: Mapping[str, str]
) -> dict[str, str]:
    given = dict(told)
    if base is None:
        return given
    if "BASE" not in dockerfile.arguments():
        raise BuildError(
            f"the Dockerfile ({dockerfile.source}) has no ARG BASE, so its base cannot be chosen",
            hint="write `ARG BASE=python:3.12-slim` above its first FROM, and `FROM $BASE`",
        )
    return {**given, "BASE": base}


# ------------------------------------------------------------------ what is told of the sources


def workspace_of(environment: Path) -> Path | None:
    """Return the checkout of OpenEnv that a directory lies in, or None."""
    for parent in environment.parents:
        if (parent / "src" / "openenv" / "__init__.py").is_file():
            project = _project(parent)
            if project.get("project", {}).get("name") == "openenv":
                return parent
    return None


def _project(directory: Path) -> dict[str, Any]:
    path = directory / "pyproject.toml"
    if not path.is_file():
        return {}
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from error


def _epoch(environment: Path) -> int:
    """The time that is told, or the last commit's.

    Source: https://reproducible-builds.org/specs/source-date-epoch
    """
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if told is not None and not told.isdigit():
        raise BuildError(f"SOURCE_DATE_EPOCH is {told!r}; it must be seconds since 1970")
    return int(told or _git(environment, "log", "-1", "--format=%ct", "--", ".") or NO_TIME)


def _labels(
    environment: Path, manifest: Mapping[str, Any], project: Mapping[str, Any]
) -> dict[str, str]:
    """What the image says of itself: https://specs.opencontainers.org/image-spec/annotations."""
    about = project.get("project", {})
    revision = _git(environment, "rev-parse", "HEAD")
    if revision and _git(environment, "status", "--porcelain", "--", "."):
        revision += "-modified"
    told = about.get("urls")
    urls = {str(k).lower(): str(url) for k, url in told.items()} if isinstance(told, dict) else {}
    source = urls.get("source") or urls.get("repository")
    source = source or _without_user(_git(environment, "remote", "get-url", "origin"))
    labels = {
        "org.opencontainers.image.title": str(manifest.get("name") or environment.name),
        "org.opencontainers.image.description": str(
            manifest.get("description") or about.get("description") or ""
        ),
        "org.opencontainers.image.version": str(
            about.get("version") or manifest.get("version") or ""
        ),
        "org.opencontainers.image.revision": revision,
        "org.opencontainers.image.source": source,
        "org.opencontainers.image.licenses": _license(about),
    }
    return {name: value for name, value in labels.items() if value}


def _license(about: Mapping[str, Any]) -> str:
    told = about.get("license")
    return told if isinstance(told, str) else ""


def _without_user(url: str) -> str:
    """An address without who asks, or by which key."""
    if re.match(r"^[\w.-]+@[\w.-]+:", url):  # of ssh, as scp writes it
        host, _, path = url.partition("@")[2].partition(":")
        return f"ssh://{host}/{path}"
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    host = parts.hostname + (f":{parts.port}" if parts.port else "")
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _git(directory: Path, *command: str) -> str:
    """What git says; empty where there is no git, or no repository."""
    try:
        done = subprocess.run(  # nosec B603, B607  # no shell; whichever git there is
            ["git", "-C", str(directory), *command],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
