"""What a Space is given: a copy of an environment's directory, as the Hub wants it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openenv.hub.dockerfiles import with_base, with_interface
from openenv.hub.errors import StructureError
from openenv.hub.front_matter import for_space
from openenv.images.context import RUBBISH, scratch_directory
from openenv.manifest import MANIFEST, ManifestError, read_manifest

__all__ = ["Staged", "check_structure", "staged", "variables_of"]

# In the syntax of .gitignore; what --exclude names comes after these, and may take one back. What
# Docker and the Hub themselves read is hidden, and is theirs.
IGNORED = (".*", "!.dockerignore", "!.gitattributes", *RUBBISH)
REQUIRED = ("__init__.py", "client.py", "README.md", "pyproject.toml")
OF_SERVER = ("server/__init__.py", "server/app.py")
DOCKERFILE = "Dockerfile"


@dataclass(frozen=True)
class Staged:
    """A copy that is ready to be uploaded.

    Attributes:
        environment: The directory that it is of.
        folder: Where it is.
        files: What is in it, with slashes, sorted.
        manifest: Its ``openenv.yaml``.
        changes: What is not as it is in the directory, for people.
        left_out: What of the directory is not in it; directories end in a slash.
    """

    environment: Path
    folder: Path
    files: tuple[str, ...]
    manifest: Mapping[str, Any]
    changes: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the environment is called."""
        return str(self.manifest["name"])

    @property
    def size_bytes(self) -> int:
        """How much its files hold."""
        return sum((self.folder / file).stat().st_size for file in self.files)


def check_structure(environment: Path) -> dict[str, Any]:
    """See that a directory is laid out as an environment; gives its manifest.

    Raises:
        StructureError: It is not; all that is missing is named at once.
    """
    if not environment.is_dir():
        raise StructureError(
            f"{environment} is no directory",
            hint="name the directory of an environment",
            is_environment=False,
        )
    try:
        manifest = read_manifest(environment)
    except ManifestError as error:
        raise StructureError(str(error), hint="openenv validate says more") from error
    if manifest is None:
        raise StructureError(
            f"{environment} has no {MANIFEST}, so it is no environment",
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
def staged(
    environment: Path,
    *,
    exclude: Path | None = None,
    base_image: str | None = None,
    interface: bool = True,
) -> Iterator[Staged]:
    """Copy what of an environment goes to the Hub, and change in the copy what the Hub needs.

    Args:
        environment: Its directory.
        exclude: A file in the syntax of ``.gitignore`` that names what else is left out.
        base_image: The image that the final stage of its Dockerfile starts from.
        interface: Whether the Space shows the web page.

    Raises:
        StructureError: The directory is not laid out as an environment, or what is left out would
            be missed.
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
        changes += _change_readme(folder, manifest, interface)
        there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        yield Staged(environment, folder, tuple(there), manifest, tuple(changes), tuple(left_out))


def variables_of(manifest: Mapping[str, Any], told: Mapping[str, str]) -> dict[str, str]:
    """The public variables of a Space: those of the manifest, and over them those that are told.

    Raises:
        StructureError: Those of the manifest are no mapping of names to values.
    """
    own = manifest.get("variables") or {}
    if not isinstance(own, Mapping) or any(isinstance(one, dict | list) for one in own.values()):
        raise StructureError(
            f"{MANIFEST}: variables must map names to values", hint="variables: {LEVEL: easy}"
        )
    return {str(name): _as_text(value) for name, value in own.items()} | dict(told)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as YAML writes it
    return "" if value is None else str(value)


# ------------------------------------------------------------------ what is copied


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
    """What is copied, and what is not: files, and directories as a whole.

    A link is what it leads to, if that is a file; links to directories are left out.
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


# ------------------------------------------------------------------ what is changed


def _to_root(folder: Path) -> list[str]:
    """Have the Dockerfile, and what it alone ignores, where Spaces look for it."""
    if (folder / DOCKERFILE).is_file():
        return []
    for name in (DOCKERFILE, f"{DOCKERFILE}.dockerignore"):
        if (folder / "server" / name).is_file():
            (folder / "server" / name).rename(folder / name)
    return [f"server/{DOCKERFILE} moved to {DOCKERFILE}"]


def _change_dockerfile(folder: Path, base_image: str | None, interface: bool) -> list[str]:
    file = folder / DOCKERFILE
    text, changes = read_text(file), []
    if base_image is not None:
        changed = with_base(text, base_image)
        if changed != text:
            changes.append(f"{DOCKERFILE}: its final stage starts from {base_image}")
        text = changed
    changed = with_interface(text, interface)
    if changed != text:
        changes.append(f"{DOCKERFILE}: ENV ENABLE_WEB_INTERFACE={'true' if interface else 'false'}")
    write_text(file, changed)
    return changes


def _change_readme(folder: Path, manifest: Mapping[str, Any], interface: bool) -> list[str]:
    file = folder / "README.md"
    text, changes = for_space(read_text(file), manifest, interface=interface)
    write_text(file, text)
    return changes


def read_text(file: Path) -> str:
    """A text with the ends of its lines as they are."""
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise StructureError(f"{file.name} is no text in UTF-8: {error.reason}") from error


def write_text(file: Path, text: str) -> None:
    """Write a text, with the ends of its lines as they are."""
    file.write_bytes(text.encode("utf-8"))
