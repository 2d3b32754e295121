"""The check that a package's dependencies are pinned by hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openenv.validation.graders import Subject
from openenv.validation.report import Judgment, conclude_problems, reject
from openenv.validation.static.package import Package, PackageError, read_toml

LOCKS = (
    "uv.lock",
    "pylock.toml",
    "poetry.lock",
    "pdm.lock",
    "requirements.lock",
    "requirements.txt",
    "server/requirements.lock",
    "server/requirements.txt",
    "environment/requirements.txt",
)
CURE = "run `uv lock` beside pyproject.toml, or `openenv build`, and commit the uv.lock of it"
SHOWN = 8

_NAME = re.compile(r"^([A-Za-z0-9][\w.-]*)")
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*===?\s*([^\s;]+)")
_PIP = re.compile(r"\b(?:uv\s+)?pip3?\s+install\s+([^&|;]*)")
_OPTIONS_WITH_VALUE = {
    "-r", "-c", "-i", "-f", "-t", "--requirement", "--constraint", "--index-url", "--target",
    "--extra-index-url", "--find-links", "--python", "--prefix", "--root", "-e", "--editable",
}  # fmt: skip


@dataclass(frozen=True)
class Lock:
    """The contents of a lock file."""

    name: str  # the file's name
    versions: Mapping[str, str]  # the version of each package, by normalized name
    without_hash: tuple[str, ...] = ()  # the packages without hashes


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _normal(name: str) -> str:
    """Normalize a name (https://packaging.python.org/specifications/name-normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def judge_dependency_pinning(subject: Subject) -> Judgment:
    """Check that a lock with hashes fixes what is installed."""
    package = subject.evidence.need(Package)
    wanted = _list_dependencies(package)
    try:
        locks = [lock for path in _lock_files(package) if (lock := read_lock(path)) is not None]
    except PackageError as error:
        return reject(str(error), remediation=CURE)
    installed = list(_unpinned_installs(package))
    measured: dict[str, Any] = {
        "dependencies": sorted(wanted),
        "locks": [lock.name for lock in locks],
        "unpinned_installs": installed,
    }
    problems = [
        *_lock_problems(wanted, locks),
        *(
            (
                f"the Dockerfile installs {name}, whichever version there is that day",
                f"in the Dockerfile write {name}==VERSION, or install from a lock with hashes",
            )
            for name in installed
        ),
    ]
    said = "it installs nothing that it names"
    if wanted and locks:
        said = f"{locks[0].name} fixes {len(locks[0].versions)} packages by their hashes"
    return conclude_problems(problems, said, **measured)


def _list_dependencies(package: Package) -> dict[str, str]:
    """Return the package's dependencies: requirements by normalized name."""
    told = _as_list(package.about.get("dependencies"))
    found = {_normal(match[1]): str(one) for one in told if (match := _NAME.match(str(one)))}
    if package.workspace is not None:
        found.pop("openenv", None)  # the image gets the checkout's OpenEnv as a wheel
    return found


def _lock_files(package: Package) -> Iterator[Path]:
    """Yield lock files, first the file that builds use.

    In a checkout of OpenEnv that is the package's ``requirements.lock``, or the checkout's.
    """
    if package.workspace is not None:
        own = package.root / "requirements.lock"
        yield own if own.is_file() else package.workspace / own.name
    yield from (path for name in LOCKS if (path := package.root / name).is_file())


def _lock_problems(wanted: Mapping[str, str], locks: list[Lock]) -> Iterator[tuple[str, str]]:
    if not wanted:
        return
    if not locks:
        names = ", ".join(list(wanted.values())[:SHOWN])
        yield f"nothing fixes what is installed for {names}: there is no lock with hashes", CURE
        return
    lock = locks[0]
    missing = [name for name in wanted if name not in lock.versions]
    if missing:
        yield f"{lock.name} does not know {', '.join(missing[:SHOWN])}: it is out of date", CURE
    if lock.without_hash:
        yield (
            f"{lock.name} has no hash of {', '.join(lock.without_hash[:SHOWN])}",
            "write the lock with hashes: `uv lock`, or `uv pip compile --generate-hashes`",
        )


def read_lock(path: Path) -> Lock | None:
    """Read a lock file; return None for a list of requirements without versions.

    Raises:
        PackageError: The file cannot be read.
    """
    if path.name not in ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml"):
        return _read_requirements(path)
    content = read_toml(path)
    rows = _as_list(content.get("package")) or _as_list(content.get("packages"))
    versions, without = {}, []
    for row in rows:
        if not isinstance(row, Mapping):
            raise PackageError(f"{path.name}: {row!r:.80} is not a package's table")
        name = _normal(str(row.get("name", "")))
        versions[name] = str(row.get("version", ""))
        if not _is_fixed(row):
            without.append(name)
    return Lock(path.name, versions, tuple(without))


def _is_fixed(row: Mapping[str, Any]) -> bool:
    """Return whether an entry of a lock is local, has hashes, or names a commit."""
    source, vcs = (
        found if isinstance(found := row.get(name), Mapping) else {} for name in ("source", "vcs")
    )
    if not source.keys().isdisjoint(("editable", "virtual", "directory", "workspace")):
        return True
    files = [row.get("sdist"), row.get("archive")]
    files += [*_as_list(row.get("wheels")), *_as_list(row.get("files"))]
    if any(
        isinstance(file, Mapping) and (file.get("hash") or file.get("hashes")) for file in files
    ):
        return True
    git, commit = str(source.get("git", "")), str(vcs.get("commit-id", ""))
    return bool(re.search(r"#[0-9a-f]{40}$", git) or re.fullmatch(r"[0-9a-f]{40,64}", commit))


def _read_requirements(path: Path) -> Lock | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PackageError(f"{path} cannot be read: {error}") from error
    versions, without = {}, []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        found = _PINNED.match(line.strip())
        if found is None:
            continue
        versions[_normal(found[1])] = found[2]
        if "--hash=" not in line:
            without.append(_normal(found[1]))
    return Lock(path.name, versions, tuple(without)) if versions else None


def _unpinned_installs(package: Package) -> Iterator[str]:
    """Yield the packages that the Dockerfile installs with pip without a pinned version."""
    if package.dockerfile is None or package.dockerfile.is_locked:
        return
    for instruction in package.instructions:
        if instruction.name == "RUN":
            for found in _PIP.finditer(instruction.text):
                yield from _floating(found[1].split())


def _floating(words: list[str]) -> Iterator[str]:
    takes_next = False
    for word in words:
        word = word.strip("\"'")
        if takes_next:
            takes_next = False
        elif word in _OPTIONS_WITH_VALUE:
            takes_next = True
        elif _NAME.match(word) and "==" not in word and "@" not in word and "/" not in word:
            yield word
