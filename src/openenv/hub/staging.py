"""Staging: a copy of an environment's directory, adapted for a Space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openenv.hub.dockerfiles import replace_base, set_interface
from openenv.hub.errors import StructureError
from openenv.hub.front_matter import complete_front_matter
from openenv.images.context import RUBBISH, scratch_directory
from openenv.manifest import MANIFEST, ManifestError, read_manifest

# In the syntax of .gitignore; the rules of --exclude follow these and may include a file again.
# Docker and the Hub read the two hidden files.
IGNORED = (".*", "!.dockerignore", "!.gitattributes", *RUBBISH)
REQUIRED = ("__init__.py", "client.py", "README.md", "pyproject.toml")
OF_SERVER = ("server/__init__.py", "server/app.py")
DOCKERFILE = "Dockerfile"


@dataclass(frozen=True)
class StagedSpace:
    """A copy that is ready for upload.

    Attributes:
        environment: The source directory.
        folder: The directory of the copy.
        files: Files of the copy, with slashes, sorted.
        manifest: Content of the ``openenv.yaml``.
        changes: Differences from the source, described for people.
        left_out: Files and directories (with a slash at the end) that were not copied.
    """

    environment: Path
    folder: Path
    files: tuple[str, ...]
    manifest: Mapping[str, Any]
    changes: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the environment's name."""
        return str(self.manifest["name"])

    @property
    def size_bytes(self) -> int:
        """Return the total size of the files."""
        return sum((self.folder / file).stat().st_size for file in self.files)


def check_structure(environment: Path) -> dict[str, Any]:
    """Check that a directory is laid out as an environment, and return the manifest.

    Raises:
        StructureError: The layout is wrong; the error names all missing files at once.
    """
    if not environment.is_dir():
        raise StructureError(
            f"{environment} is not a directory",
            hint="name the directory of an environment",
            is_environment=False,
        )
    try:
        manifest = read_manifest(environment)
    except ManifestError as error:
        raise StructureError(str(error), hint="openenv validate says more") from error
    if manifest is None:
        raise StructureError(
            f"{environment} has no {MANIFEST}, so it is not an environment",
            hint="name the directory of one, or make one: openenv init my_env",
            is_environment=False,
        )
    if not manifest.get("name"):
        raise StructureError(f"{environment / MANIFEST} has no name", hint="add `name: my_env`")
    wanted: list[str] = [*REQUIRED]
    if not (environment / DOCKERFILE).is_file():
        wanted += OF_SERVER
    missing = [name for name in wanted if not (environment / name).is_file()]
    if not any((environment / at / DOCKERFILE).is_file() for at in ("", "server")):
        missing.append("server/Dockerfile (or Dockerfile)")
    if missing:
        raise StructureError(
            f"{environment} lacks {', '.join(missing)}",
            missing=missing,
            hint="`openenv init` shows what an environment consists of",
        )
    return manifest


@contextmanager
def stage_space(
    environment: Path,
    *,
    exclude: Path | None = None,
    base_image: str | None = None,
    interface: bool = True,
) -> Iterator[StagedSpace]:
    """Copy an environment's directory, and adapt the copy to the Hub.

    Args:
        environment: The environment's directory.
        exclude: A file in the syntax of ``.gitignore`` with further exclusions.
        base_image: New base image for the final stage of the Dockerfile.
        interface: Whether the Space shows the web page.

    Raises:
        StructureError: The directory is not laid out as an environment, or the exclusions remove a
            required file.
    """
    environment = environment.resolve()
    manifest = check_structure(environment)
    files, left_out = _chosen(environment, _rules(exclude))
    with scratch_directory() as scratch:
        folder = scratch / "space"
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(environment / file, folder / file)
        changes = _to_root(folder)
        changes += _change_dockerfile(folder, base_image, interface)
        readme = folder / "README.md"
        text, more = complete_front_matter(read_text(readme), manifest, interface=interface)
        write_text(readme, text)
        changes += more
        there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        yield StagedSpace(
            environment, folder, tuple(there), manifest, tuple(changes), tuple(left_out)
        )


def merge_variables(manifest: Mapping[str, Any], told: Mapping[str, str]) -> dict[str, str]:
    """Return the public variables of a Space: the manifest's, overridden by `told`.

    Raises:
        StructureError: The manifest's variables do not map names to values.
    """
    own = manifest.get("variables") or {}
    if not isinstance(own, Mapping) or any(isinstance(one, dict | list) for one in own.values()):
        raise StructureError(
            f"{MANIFEST}: variables must map names to values", hint="variables: {LEVEL: easy}"
        )
    return {str(name): _as_text(value) for name, value in own.items()} | dict(told)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as YAML spells it
    return "" if value is None else str(value)


# ------------------------------------------------------------------ the copy


def _rules(exclude: Path | None) -> Any:
    from pathspec import PathSpec

    lines = list(IGNORED)
    if exclude is not None:
        try:
            lines += exclude.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise StructureError(f"{exclude} cannot be read: {error}") from error
    return PathSpec.from_lines("gitignore", lines)


def _chosen(root: Path, rules: Any) -> tuple[list[str], list[str]]:
    """Return the files to copy, and the files and whole directories to leave out.

    A link to a file is copied as the file; links to directories are left out.
    """
    files: list[str] = []
    left_out: list[str] = []
    for folder, directories, names in os.walk(root):
        here = Path(folder).relative_to(root)
        for name in sorted(directories):
            path = (here / name).as_posix()
            if rules.match_file(f"{path}/") or (root / path).is_symlink():
                directories.remove(name)
                left_out.append(f"{path}/")
        for name in sorted(names):
            path = (here / name).as_posix()
            is_taken = not rules.match_file(path) and (root / path).is_file()
            (files if is_taken else left_out).append(path)
    needed = [MANIFEST, *REQUIRED]
    missed = [name for name in needed if name not in files]
    if not {DOCKERFILE, f"server/{DOCKERFILE}"} & set(files):
        missed.append(DOCKERFILE)
    if missed:
        raise StructureError(
            f"--exclude leaves out {', '.join(missed)}, which a Space needs",
            hint="take it back by a line such as `!README.md`",
        )
    return files, sorted(left_out)


# ------------------------------------------------------------------ changes to the copy


def _to_root(folder: Path) -> list[str]:
    """Move the Dockerfile and the matching ignore file to the root, as Spaces expect."""
    if (folder / DOCKERFILE).is_file():
        return []
    for name in (DOCKERFILE, f"{DOCKERFILE}.dockerignore"):
        if (folder / "server" / name).is_file():
            (folder / "server" / name).rename(folder / name)
    return [f"server/{DOCKERFILE} moved to {DOCKERFILE}"]


def _change_dockerfile(folder: Path, base_image: str | None, interface: bool) -> list[str]:
    file = folder / DOCKERFILE
    text, changes = read_text(file), []
    based = text if base_image is None else replace_base(text, base_image)
    if based != text:
        changes.append(f"{DOCKERFILE}: its final stage starts from {base_image}")
    changed = set_interface(based, interface)
    if changed != based:
        changes.append(f"{DOCKERFILE}: ENV ENABLE_WEB_INTERFACE={'true' if interface else 'false'}")
    write_text(file, changed)
    return changes


def read_text(file: Path) -> str:
    """Read a text file with line endings unchanged."""
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise StructureError(f"{file.name} is not UTF-8 text: {error.reason}") from error


def write_text(file: Path, text: str) -> None:
    """Write a text file with line endings unchanged."""
    file.write_bytes(text.encode("utf-8"))
