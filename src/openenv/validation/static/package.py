"""The contents of a package: files, project and Dockerfile, read without running code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from openenv._internal.dockerfile import DockerfileInstruction, ParsedDockerfile
from openenv._internal.toml import parse_toml
from openenv.errors import OpenEnvError
from openenv.images.context import BuildContext, read_build_context
from openenv.images.errors import BuildError
from openenv.images.plan import BuildPlan, read_plan
from openenv.manifest import MANIFEST
from openenv.validation.manifest import AnyManifest, NormalizedManifestV2

PLACES = ("server/Dockerfile", "Dockerfile", "environment/Dockerfile")
# The Dockerfile that `openenv build` uses for an environment without a Dockerfile.
DEFAULT = resources.files("openenv") / "cli" / "template" / "common" / "server" / "Dockerfile.tmpl"


class PackageError(OpenEnvError, ValueError):
    """A file of a package that cannot be read; the message says which, and why."""


@dataclass(frozen=True)
class Package:
    """The contents of a package's directory."""

    root: Path
    contents: BuildContext  # the files, without leftovers of tools
    dockerfile: ParsedDockerfile | None  # the image's Dockerfile; None if there is none
    plan: BuildPlan | None  # the plan of `openenv build`; None if it cannot build the package
    why_no_plan: str  # why there is no plan; empty if there is a plan
    project: Mapping[str, Any] = field(repr=False)  # the ``pyproject.toml``
    unreadable: tuple[str, ...] = ()  # files that could not be read, with reasons

    @property
    def workspace(self) -> Path | None:
        """The checkout of OpenEnv that contains the package; None if unknown."""
        return None if self.plan is None else self.plan.workspace

    @property
    def about(self) -> Mapping[str, Any]:
        """The table ``[project]`` of ``pyproject.toml``; empty if missing."""
        found = self.project.get("project")
        return found if isinstance(found, Mapping) else {}

    @property
    def instructions(self) -> list[DockerfileInstruction]:
        """All instructions of the Dockerfile, stage by stage."""
        stages = () if self.dockerfile is None else self.dockerfile.stages
        return [instruction for stage in stages for instruction in stage.instructions]

    @property
    def final(self) -> tuple[DockerfileInstruction, ...]:
        """The instructions of the final image: the last stage and the stages it builds on."""
        return () if self.dockerfile is None else self.dockerfile.final

    def sources(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each Python file."""
        for name in self.contents.files:
            path = self.root / name
            if path.suffix == ".py" and not path.is_symlink():
                yield name, path.read_text(encoding="utf-8", errors="replace")


def read_package(root: Path, manifest: AnyManifest | None, *, base: str | None = None) -> Package:
    """Read the contents of a package; `base` replaces the Dockerfile's base image.

    Raises:
        PackageError: A file of the package cannot be read.
    """
    root = root.resolve()
    try:
        contents = read_build_context(root)
        dockerfile = _dockerfile(root, manifest)
    except (BuildError, OSError) as error:
        raise PackageError(str(error)) from error
    try:
        project = _project(root)
    except PackageError as error:
        return Package(root, contents, dockerfile, None, str(error), {}, (str(error),))
    plan, why_not = _plan(root, dockerfile, base)
    return Package(root, contents, dockerfile, plan, why_not, project)


def _dockerfile(root: Path, manifest: AnyManifest | None) -> ParsedDockerfile | None:
    declared = (
        (manifest.execution.dockerfile,) if isinstance(manifest, NormalizedManifestV2) else ()
    )
    for place in (*declared, *PLACES):
        if (root / place).is_file():
            try:
                return ParsedDockerfile((root / place).read_text(encoding="utf-8"), place)
            except ValueError as error:
                raise PackageError(f"{place} cannot be read: {error}") from error
    return None


def _plan(
    root: Path, dockerfile: ParsedDockerfile | None, base: str | None
) -> tuple[BuildPlan | None, str]:
    if not (root / MANIFEST).is_file():
        return None, f"`openenv build` builds packages with {MANIFEST}"
    path = None if dockerfile is None else root / dockerfile.source
    try:
        default = DEFAULT.read_text(encoding="utf-8")
        return read_plan(root, default_dockerfile=default, dockerfile=path, base=base), ""
    except BuildError as error:
        return None, str(error)


def _project(root: Path) -> Mapping[str, Any]:
    path = root / "pyproject.toml"
    found = read_toml(path) if path.is_file() else {}
    if not isinstance(found.get("project", {}), Mapping):
        raise PackageError(f"{path.name}: project is not a table: {found['project']!r:.80}")
    if not isinstance(wanted := found.get("project", {}).get("dependencies", []), list):
        raise PackageError(f"{path.name}: project.dependencies is not a list: {wanted!r:.80}")
    return found


def read_toml(path: Path) -> Mapping[str, Any]:
    """Read a TOML file.

    Raises:
        PackageError: The file cannot be read.
    """
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PackageError(f"{path.name} cannot be read: {error}") from error
