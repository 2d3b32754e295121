"""Plans of builds, read from an environment's directory before anything is built."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openenv._internal.dockerfile import ParsedDockerfile
from openenv._internal.toml import parse_toml
from openenv.images.context import BuildContext, read_build_context
from openenv.images.errors import BuildError
from openenv.manifest import (
    MANIFEST,
    ManifestError,
    image_name,
    package_name,
    read_manifest,
    short_name,
)

PLACES = ("server/Dockerfile", "Dockerfile")
# The time of an image's files if its sources have none: 2 February 2020, as in hatchling's wheels.
NO_TIME = 1580601600
GIT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class BuildPlan:
    """The inputs of an image's build.

    Attributes:
        environment: Directory of the environment.
        name: Name of the environment.
        package: Name of the environment's Python package.
        contents: Files of the build context.
        dockerfile: The Dockerfile.
        workspace: The OpenEnv checkout that holds the environment and whose source goes into the
            image; None for a standalone environment.
        arguments: Build arguments.
        labels: Labels of the image.
        epoch_s: Time of every file in the image, in seconds since 1970.
        project: The environment's ``pyproject.toml``.
    """

    environment: Path
    name: str
    package: str
    contents: BuildContext
    dockerfile: ParsedDockerfile
    workspace: Path | None
    arguments: Mapping[str, str]
    labels: Mapping[str, str]
    epoch_s: int
    project: Mapping[str, Any] = field(repr=False)

    @property
    def extras(self) -> str:
        """Return the package extras to install, comma-separated, for ``ARG EXTRAS``."""
        return self.arguments.get("EXTRAS") or self.dockerfile.arguments().get("EXTRAS") or ""

    def contents_of_environment(self) -> BuildContext:
        """Return the files of the environment's directory that go into the wheel."""
        if self.contents.root == self.environment:
            return self.contents
        return read_build_context(self.environment)

    @property
    def bases(self) -> list[str]:
        """Return the base images."""
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
) -> BuildPlan:
    """Read the build plan of an environment.

    Args:
        environment: Directory with an ``openenv.yaml``.
        default_dockerfile: Dockerfile text for an environment without one; ``__ENV_NAME__`` stands
            for the package.
        dockerfile: Path of the Dockerfile; by default ``server/Dockerfile`` or ``Dockerfile``.
        context: Directory of the build context; by default the environment's.
        base: Base image, passed as the Dockerfile's ``ARG BASE``.
        arguments: Other build arguments.
        labels: Labels for the image; they override our own.

    Raises:
        BuildError: A file is missing or unreadable, or the inputs contradict each other.
    """
    environment = environment.resolve()
    try:
        manifest = read_manifest(environment)
    except ManifestError as error:
        raise BuildError(str(error)) from error
    if manifest is None:
        raise BuildError(
            f"{environment} has no {MANIFEST}, so it is not an environment",
            hint="name the directory of one: openenv build DIRECTORY",
        )
    package = package_name(manifest) or environment.name.replace("-", "_")
    found = _dockerfile(
        environment, dockerfile, default_dockerfile.replace("__ENV_NAME__", package)
    )
    given = dict(arguments or {})
    if base is not None:
        if "BASE" not in found.arguments():
            raise BuildError(
                f"the Dockerfile ({found.source}) has no ARG BASE, so its base cannot be chosen",
                hint="write `ARG BASE=python:3.12-slim` above its first FROM, and `FROM $BASE`",
            )
        given["BASE"] = base
    workspace = workspace_of(environment)
    if "BUILD_MODE" in found.arguments():
        given.setdefault("BUILD_MODE", "standalone" if workspace is None else "in-repo")
    if "ENV_NAME" in found.arguments():
        given.setdefault("ENV_NAME", package)
    root = (context or environment).resolve()
    if not root.is_dir():
        raise BuildError(f"{root} is not a directory, so it cannot be the context of a build")
    own = Path(f"{dockerfile or environment / found.source}.dockerignore")
    epoch_s = _epoch(environment)
    given["SOURCE_DATE_EPOCH"] = given.get("SOURCE_DATE_EPOCH", str(epoch_s))
    project = _project(environment)
    return BuildPlan(
        environment=environment,
        name=str(manifest.get("name") or environment.name),
        package=package,
        contents=read_build_context(root, own if own.is_file() else None),
        dockerfile=found,
        workspace=workspace,
        arguments=given,
        labels={**_labels(environment, manifest, project), **(labels or {})},
        epoch_s=int(given["SOURCE_DATE_EPOCH"]),
        project=project,
    )


def default_tags(plan: BuildPlan) -> tuple[str, ...]:
    """Return the default names of an image: AutoEnv's, and the public package's."""
    return image_name(plan.name), f"openenv-{short_name(plan.environment.name)}:latest"


# ------------------------------------------------------------------ the Dockerfile


def _dockerfile(environment: Path, told: Path | None, default: str) -> ParsedDockerfile:
    try:
        if told is not None:
            return ParsedDockerfile(told.read_text(encoding="utf-8"), str(told))
        for place in PLACES:
            if (environment / place).is_file():
                return ParsedDockerfile((environment / place).read_text(encoding="utf-8"), place)
    except (OSError, UnicodeDecodeError) as error:
        why = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        )
        raise BuildError(
            f"the Dockerfile {told or environment} {why}",
            hint=f"without --dockerfile it is {' or '.join(PLACES)} of the environment, or ours",
        ) from error
    return ParsedDockerfile(default, "the one of `openenv init`, as it has none of its own")


# ------------------------------------------------------------------ information about the sources


def workspace_of(environment: Path) -> Path | None:
    """Return the OpenEnv checkout that contains a directory, or None."""
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
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from error


def _epoch(environment: Path) -> int:
    """Return the time of SOURCE_DATE_EPOCH, or of the last commit, in seconds since 1970.

    Source: https://reproducible-builds.org/specs/source-date-epoch
    """
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if told is not None and not told.isdigit():
        raise BuildError(f"SOURCE_DATE_EPOCH is {told!r}; it must be seconds since 1970")
    return int(told or _git(environment, "log", "-1", "--format=%ct", "--", ".") or NO_TIME)


def _labels(
    environment: Path, manifest: Mapping[str, Any], project: Mapping[str, Any]
) -> dict[str, str]:
    """Return the image's labels: https://specs.opencontainers.org/image-spec/annotations."""
    about = project.get("project", {})
    license = about.get("license")
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
        "org.opencontainers.image.licenses": license if isinstance(license, str) else "",
    }
    return {name: value for name, value in labels.items() if value}


def _without_user(url: str) -> str:
    """Return a repository address without user, password or key."""
    if re.match(r"^[\w.-]+@[\w.-]+:", url):  # an SSH address in the form of scp
        host, _, path = url.partition("@")[2].partition(":")
        return f"ssh://{host}/{path}"
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    host = parts.hostname + (f":{parts.port}" if parts.port else "")
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _git(directory: Path, *command: str) -> str:
    """Return git's output; empty if git fails, is not installed, or finds no repository."""
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
