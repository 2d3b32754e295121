"""What a package holds, read once: its files, its project, its Dockerfile. Nothing of it is run."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from openenv.errors import OpenEnvError
from openenv.images.context import Contents, read_contents
from openenv.images.dockerfile import Dockerfile
from openenv.images.errors import BuildError
from openenv.images.plan import Plan, read_plan
from openenv.manifest import MANIFEST
from openenv.validation.manifest import AnyManifest, NormalizedManifestV2

__all__ = ["Instruction", "Package", "PackageError", "read_package"]

PLACES = ("server/Dockerfile", "Dockerfile", "environment/Dockerfile")
DEFAULT = resources.files("openenv") / "cli" / "template" / "server" / "Dockerfile.tmpl"


class PackageError(OpenEnvError, ValueError):
    """A file of a package cannot be read; the text says which, and why."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile.

    Attributes:
        name: Such as ``RUN``.
        text: What follows it, on one line.
        line: The line that it begins on, from 1.
    """

    name: str
    text: str
    line: int


@dataclass(frozen=True)
class Package:
    """A package's directory.

    Attributes:
        root: The directory.
        contents: Its files, without what tools leave behind.
        dockerfile: What its image is built by; None where there is none.
        plan: What `openenv build` would build; None where it builds no such package.
        why_no_plan: Why there is none.
        project: Its ``pyproject.toml``.
        unreadable: What of it could not be read, and why.
    """

    root: Path
    contents: Contents
    dockerfile: Dockerfile | None
    plan: Plan | None
    why_no_plan: str
    project: Mapping[str, Any] = field(repr=False)
    unreadable: tuple[str, ...] = ()

    @property
    def workspace(self) -> Path | None:
        """The checkout of OpenEnv that it lies in."""
        return None if self.plan is None else self.plan.workspace

    @property
    def about(self) -> Mapping[str, Any]:
        """The table ``[project]`` of its ``pyproject.toml``."""
        found = self.project.get("project")
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def stages(self) -> list[list[Instruction]]:
        """The stages of its Dockerfile; each begins with its FROM."""
        stages: list[list[Instruction]] = []
        for instruction in () if self.dockerfile is None else _instructions(self.dockerfile.text):
            if instruction.name == "FROM":
                stages.append([])
            if stages:
                stages[-1].append(instruction)
        return stages

    @cached_property
    def final(self) -> list[Instruction]:
        """The instructions that the last stage consists of, with those of stages it is built on."""
        by_name = {_stage_name(stage): stage for stage in self.stages}
        found: list[Instruction] = []
        stage = self.stages[-1] if self.stages else []
        seen: set[int] = set()
        while stage and id(stage) not in seen:
            seen.add(id(stage))
            found = [*stage[1:], *found]
            stage = by_name.get(_base_name(stage), [])
        return found

    def sources(self) -> Iterator[tuple[str, str]]:
        """Its Python files with their texts."""
        for name in self.contents.files:
            path = self.root / name
            if path.suffix == ".py" and not path.is_symlink():
                yield name, path.read_text(encoding="utf-8", errors="replace")


def read_package(root: Path, manifest: AnyManifest | None, *, base: str | None = None) -> Package:
    """Read what a package holds.

    Args:
        root: Its directory.
        manifest: What it declares; None where that is not known.
        base: The image that its own starts from, where that is not what its Dockerfile says.

    Raises:
        PackageError: A file of it cannot be read.
    """
    root = root.resolve()
    try:
        contents = read_contents(root)
        dockerfile = _dockerfile(root, manifest)
    except (BuildError, OSError, UnicodeDecodeError) as error:
        raise PackageError(str(error)) from error
    unreadable, project = [], {}
    try:
        project = dict(_project(root))
    except PackageError as error:
        unreadable.append(str(error))
    plan, why_not = _plan(root, dockerfile, base)
    return Package(root, contents, dockerfile, plan, why_not, project, tuple(unreadable))


def _dockerfile(root: Path, manifest: AnyManifest | None) -> Dockerfile | None:
    declared = (
        (manifest.execution.dockerfile,) if isinstance(manifest, NormalizedManifestV2) else ()
    )
    for place in (*declared, *PLACES):
        if (root / place).is_file():
            return Dockerfile((root / place).read_text(encoding="utf-8"), place)
    return None


def _plan(root: Path, dockerfile: Dockerfile | None, base: str | None) -> tuple[Plan | None, str]:
    if not (root / MANIFEST).is_file():
        return None, f"`openenv build` builds packages with {MANIFEST}"
    path = None if dockerfile is None else root / dockerfile.source
    try:
        return read_plan(root, default_dockerfile=_default(), dockerfile=path, base=base), ""
    except BuildError as error:
        return None, str(error)


def _default() -> str:
    """The Dockerfile that `openenv build` takes for an environment that has none."""
    return DEFAULT.read_text(encoding="utf-8")


def _project(root: Path) -> Mapping[str, Any]:
    path = root / "pyproject.toml"
    return read_toml(path) if path.is_file() else {}


def read_toml(path: Path) -> Mapping[str, Any]:
    """Read a file of TOML.

    Raises:
        PackageError: It cannot be read.
    """
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        found: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PackageError(f"{path.name} cannot be read: {error}") from error
    return found


# ------------------------------------------------------------------ Dockerfiles

_INSTRUCTION = re.compile(r"^\s*([A-Za-z]+)\s+(.*)$", re.DOTALL)
_FROM = re.compile(r"^(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)


def _instructions(text: str) -> Iterator[Instruction]:
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        began, parts = number, []
        while number < len(lines):
            line = lines[number]
            number += 1
            if line.lstrip().startswith("#"):
                continue
            parts.append(line.rstrip().removesuffix("\\"))
            if not line.rstrip().endswith("\\"):
                break
        if match := _INSTRUCTION.match(" ".join(parts)):
            yield Instruction(match[1].upper(), match[2].strip(), began + 1)


def _stage_name(stage: list[Instruction]) -> str:
    match = _FROM.match(stage[0].text)
    return (match[2] or "").lower() if match else ""


def _base_name(stage: list[Instruction]) -> str:
    match = _FROM.match(stage[0].text)
    return match[1].lower() if match else ""
