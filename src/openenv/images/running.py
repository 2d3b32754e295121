"""The running OpenEnv, packaged for installation elsewhere.

A released version is on an index, so its number suffices. A development version is not: its number
names another package, or none. `write_wheel` makes a wheel of the running code from the imported
files and their installed metadata. It needs no index and no build backend, and the same files give
the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import openenv
from openenv._internal.toml import parse_toml
from openenv._internal.version import version
from openenv.images.errors import BuildError

WHEELS = "wheels"
"""Directory of an environment for a wheel of an OpenEnv that no index has."""

LOCKED = Path("locked")
RUNNING = Path("running")
"""Values of ``--openenv`` other than a path: the version in ``uv.lock``, or the running one."""

PACKAGES = ("openenv", "openenv_core")
LEFT_OUT = ("__pycache__", ".DS_Store")
ZIP_TIME = (2020, 2, 2, 0, 0, 0)
WHEEL_FILE = """\
Wheel-Version: 1.0
Generator: openenv
Root-Is-Purelib: true
Tag: py3-none-any
"""


def is_released() -> bool:
    """Return whether an index can be expected to have the running version.

    A development version is on no index. Nor is a version installed from a directory, a repository
    or a file, as recorded by pip and uv (https://peps.python.org/pep-0610).
    """
    number = version()
    if ".dev" in number or "+" in number or number == "0.0.0":
        return False
    return importlib.metadata.distribution("openenv").read_text("direct_url.json") is None


# ------------------------------------------------------------------ a wheel of the running code


def write_wheel(folder: Path) -> Path:
    """Write a wheel of the running OpenEnv into a directory.

    Raises:
        BuildError: OpenEnv runs from sources that are not installed, or the wheel cannot be
            written.
    """
    try:
        about = importlib.metadata.distribution("openenv")
    except importlib.metadata.PackageNotFoundError:
        source = Path(openenv.__file__).parents[1]
        raise BuildError(
            f"OpenEnv runs from {source} and is not installed, so no wheel can be made of it",
            hint="pip install -e CHECKOUT, or pass --openenv PATH",
        ) from None
    info = f"openenv-{about.version}.dist-info"
    files = dict(_package_files())
    files |= {f"{info}/{name}": data for name, data in _metadata_files(about)}
    record = []  # the table of files and hashes at the end of a wheel
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}\n")
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    target = folder / f"openenv-{about.version}-py3-none-any.whl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                entry = zipfile.ZipInfo(name, ZIP_TIME)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    except OSError as error:
        raise BuildError(f"{target} cannot be written: {error.strerror}") from error
    return target


def _package_files() -> Iterator[tuple[str, bytes]]:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            continue
        root = Path(next(iter(spec.submodule_search_locations)))
        for file in sorted(root.rglob("*")):
            parts = file.relative_to(root).parts
            if file.is_file() and file.suffix != ".pyc" and not set(parts) & set(LEFT_OUT):
                yield "/".join((name, *parts)), file.read_bytes()


def _metadata_files(about: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    licenses = [f"licenses/{name}" for name in about.metadata.get_all("License-File") or ()]
    for name in ("METADATA", "entry_points.txt", *licenses):
        if (text := about.read_text(name)) is not None:
            yield name, text.encode()
    yield "WHEEL", WHEEL_FILE.encode()


# ------------------------------------------------------------------ the locked version


def declared_source(environment: Path, project: Mapping[str, Any]) -> Path | None:
    """Return the wheel or directory of OpenEnv in ``[tool.uv.sources]``, or None."""
    told = project.get("tool", {}).get("uv", {}).get("sources", {}).get("openenv")
    path = told.get("path") if isinstance(told, dict) else None
    return None if path is None else (environment / path).resolve()


def check_locked(environment: Path, *, is_fatal: bool = True) -> str | None:
    """Compare the OpenEnv version in an environment's ``uv.lock`` with the running one.

    Args:
        environment: Directory of the environment.
        is_fatal: Raise if the versions are of different series, such as 0.10 and 0.11.

    Returns:
        A sentence about both versions; None if they are equal or nothing is locked.

    Raises:
        BuildError: The versions are of different series, so that the image would hold another
            package than the one the environment was developed with.
    """
    found = _locked_version(environment)
    running = version()
    if found is None or found == running:
        return None
    words = f"uv.lock has openenv {found}, and openenv {running} runs here"
    if is_fatal and _series(found) != _series(running):
        raise BuildError(
            words,
            hint="`--openenv running` takes the one that runs, `--openenv locked` that of uv.lock",
        )
    return words


def _locked_version(environment: Path) -> str | None:
    file = environment / "uv.lock"
    if not file.is_file():
        return None
    try:
        packages = parse_toml(file.read_text(encoding="utf-8")).get("package", [])
    except (OSError, ValueError) as error:
        raise BuildError(f"{file} cannot be read: {error}", hint="run `uv lock`") from error
    for one in packages:
        if one.get("name") == "openenv":
            return str(one.get("version", "")) or None
    return None


def _series(number: str) -> str:
    """Return a version's compatibility series: ``0.5`` of ``0.5.2.dev0``, ``1`` of ``1.4``."""
    found = re.match(r"(0\.\d+|\d+)", number)
    return found[1] if found else number
