"""Prepare a release: `make release VERSION=0.11.0`. This program tags and uploads nothing.

The version is written into `pyproject.toml`, the environments' requirements, the TypeScript client,
and the heading of the section *Unreleased* of `CHANGELOG.md`. Then all wheels and sdists are built
into `dist/` and checked. Finally the remaining steps are printed: the git commands and the upload.
"""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.metadata import ExceptionGroup, Metadata
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "## [Unreleased]"


class ReleaseError(Exception):
    """The release is not possible; the message says why."""


def main() -> int:
    """Prepare a release of the version on the command line."""
    if len(sys.argv) != 2:
        print("usage: python scripts/release.py VERSION", file=sys.stderr)
        return 2
    try:
        release(ROOT, sys.argv[1])
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def release(root: Path, wanted: str) -> None:
    """Write the version everywhere, and build and check the packages.

    Raises:
        ReleaseError: The version, the changelog or the tree does not allow the release, or a build
            failed.
    """
    old, new = current(root), parsed(wanted)
    if new < Version(old):
        raise ReleaseError(f"{new} is older than {old}, which is in pyproject.toml")
    if _git(root, "status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed: git status")
    changelog = dated(root / "CHANGELOG.md", str(new))
    paths = renamed(root, old, str(new))
    if changelog is not None:
        (root / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8")
    shutil.rmtree(root / "dist", ignore_errors=True)
    for project in (root, *sorted(path.parent for path in root.glob("envs/*/pyproject.toml"))):
        print(f"building {project.name}", file=sys.stderr)
        built(root, project)
    print(f"dist/ holds {len(list((root / 'dist').glob('*.whl')))} wheels and their sources; next:")
    print("  raise the versions of environments that an index has already: envs/*/pyproject.toml")
    print("  make check test-all test-pythons")
    print(f"  git commit -am 'Version {new}'")
    print(f"  git tag -a v{new} -m 'Version {new}' && git push --follow-tags")
    print("  uv publish dist/*")


def parsed(wanted: str) -> Version:
    """Parse the version, which must be in its normal form."""
    try:
        found = Version(wanted)
    except InvalidVersion:
        raise ReleaseError(f"{wanted!r} is no version; one is 0.11.0 or 0.12.0.dev0") from None
    if found.local:
        raise ReleaseError(f"{found} has a local part, which no index takes")
    if str(found) != wanted:
        raise ReleaseError(f"{wanted} is written {found}")
    return found


def current(root: Path) -> str:
    """Return the version in `pyproject.toml`."""
    found = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def renamed(root: Path, old: str, new: str) -> dict[Path, str]:
    """Return the new texts of the files that contain the old version."""
    places = [
        *root.glob("envs/*/pyproject.toml"),
        *root.glob("envs/*/server/requirements.txt"),
    ]
    asked = re.compile(rf"(openenv(?:\[[\w,-]+\])?>=){re.escape(old)}(?![\w.])")
    texts = {path: asked.sub(rf"\g<1>{new}", path.read_text(encoding="utf-8")) for path in places}
    project = root / "pyproject.toml"
    line = rf'^version = "{re.escape(old)}"$'
    text = project.read_text(encoding="utf-8")
    texts[project] = re.sub(line, f'version = "{new}"', text, flags=re.MULTILINE)
    was, now = (f'"version": "{of_npm(one)}"' for one in (old, new))
    for path in root.glob("clients/typescript/package*.json"):
        texts[path] = path.read_text(encoding="utf-8").replace(was, now)
    return texts


def of_npm(version: str) -> str:
    """Return a version in npm's form: ``1.2.0-dev.0`` for ``1.2.0.dev0``."""
    found = Version(version)
    names = {"a": "alpha", "b": "beta", "rc": "rc"}
    before = [f"{names[found.pre[0]]}.{found.pre[1]}"] if found.pre else []
    before += [f"dev.{found.dev}"] if found.dev is not None else []
    return "-".join([found.base_version, ".".join(before)] if before else [found.base_version])


def dated(path: Path, new: str) -> str | None:
    """Return the changelog with the unreleased section under a version; None if unchanged.

    Raises:
        ReleaseError: The changelog has nothing about the version.
    """
    if Version(new).is_devrelease:
        return None
    text = path.read_text(encoding="utf-8")
    section = _section(text, f"## [{new}]")
    if section is not None:
        if not section:
            raise ReleaseError(f"CHANGELOG.md has nothing under [{new}]")
        return None
    if not _section(text, UNRELEASED):
        raise ReleaseError(f"CHANGELOG.md has nothing under [{new}], nor under [Unreleased]")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return text.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{new}] - {today}", 1)


def _section(text: str, heading: str) -> str | None:
    """Return the text under a heading, up to the next heading of its level; None if missing."""
    found = re.search(rf"^{re.escape(heading)}.*?$(.*?)(?=^## |\Z)", text, re.M | re.S)
    return None if found is None else found[1].strip()


def built(root: Path, project: Path) -> None:
    """Build a project into `dist/` with the locked build backend, and check its metadata."""
    uv, dist = Path(sys.executable).with_name("uv"), root / "dist"
    before = set(dist.glob("*.whl"))
    command = [str(uv), "build", "--quiet", "--out-dir", str(dist)]
    command += ["--build-constraint", str(root / "requirements.lock"), str(project)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # nosec B603
    if done.returncode:
        raise ReleaseError(f"{project} could not be built: {done.stderr.strip()}")
    [wheel] = set(dist.glob("*.whl")) - before
    with zipfile.ZipFile(wheel) as opened:
        [name] = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        try:
            Metadata.from_email(opened.read(name), validate=True)
        except ExceptionGroup as error:
            raise ReleaseError(f"{wheel.name} has wrong metadata: {error.exceptions}") from None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)  # nosec B603, B607
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
