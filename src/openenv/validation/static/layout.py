"""Checks of a package's files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path

from openenv.images.running import declared_source
from openenv.validation.graders import Subject
from openenv.validation.manifest import AnyManifest, NormalizedManifestV2
from openenv.validation.report import Judgment, conclude_problems
from openenv.validation.static.declarations import ManifestEvidence
from openenv.validation.static.package import Package

LARGEST_BYTES = 50 * 2**20
HEAD_BYTES = 512
SHOWN = 8

# Magic bytes of archives: (offset, bytes, name).
MAGIC = (
    (0, b"PK\x03\x04", "zip"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\x00", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstandard"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "rar"),
    (257, b"ustar", "tar"),
)
# Formats that are archives internally, but are used without unpacking.
FORMATS = {".npz", ".xlsx", ".docx", ".pptx", ".odt", ".ods", ".epub", ".svgz", ".pt", ".nii"}


def judge_layout(subject: Subject) -> Judgment:
    """Check that all declared files exist, and that no file is an archive, a secret or huge."""
    package = subject.evidence.need(Package)
    declared = subject.evidence.need(ManifestEvidence).manifest
    problems = [(why, f"mend {why.partition(' ')[0]}") for why in package.unreadable]
    problems += [*_archives(package), *_strays(package)]
    if declared is not None:
        problems += _missing(package, declared)
    count, size_bytes = len(package.contents.files), package.contents.size_bytes
    said = f"{count} files, none of them an archive"
    return conclude_problems(problems, said, files=count, size_bytes=size_bytes)


def _archives(package: Package) -> Iterator[tuple[str, str]]:
    # The wheel of an unpublished OpenEnv is an allowed archive.
    wheel = declared_source(package.root, package.project)
    for name in package.contents.files:
        path = package.root / name
        if path.is_symlink() or path.suffix.lower() in FORMATS or path == wheel:
            continue
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        kinds = (kind for at, magic, kind in MAGIC if head[at : at + len(magic)] == magic)
        if kind := next(kinds, None):
            yield (
                f"{name} is an archive ({kind}): nobody sees what is in it, and a change of one "
                "file in it changes a whole layer",
                f"unpack {name} into the package, or let the Dockerfile fetch it, with its digest",
            )


def _strays(package: Package) -> Iterator[tuple[str, str]]:
    for name in package.contents.secrets[:SHOWN]:
        yield (
            f"{name} looks like a secret",
            f"remove {name}, and give it to the server when it starts",
        )
    for name in package.contents.files:
        path = package.root / name
        if path.is_symlink():
            target = posixpath.join(path.parent.as_posix(), path.readlink().as_posix())
            if not Path(posixpath.normpath(target)).is_relative_to(package.root):
                yield f"{name} is a link out of the package", f"replace {name} by what it leads to"
        elif (size := path.stat().st_size) > LARGEST_BYTES:
            yield (
                f"{name} has {size / 2**20:,.0f} MB, and every image carries them",
                f"move {name} to a data set with a pinned revision, and fetch it in the Dockerfile",
            )


def _missing(package: Package, manifest: AnyManifest) -> Iterator[tuple[str, str]]:
    for field, name in _named_files(manifest):
        path = package.root / name
        if not path.resolve().is_relative_to(package.root):
            yield (
                f"{field} is {name!r}, which is not in the package",
                f"write {field}: a path relative to the package",
            )
        elif not path.exists():
            yield f"{field} names {name}, which is not there", f"add {name}, or mend {field}"


def _named_files(manifest: AnyManifest) -> Iterator[tuple[str, str]]:
    declared, where = manifest.capabilities, "validation.capabilities"
    if declared.oracle is not None:
        yield f"{where}.oracle.location", declared.oracle.location.partition(":")[0]
    if declared.verifier.entry is not None:
        yield f"{where}.verifier.entry", declared.verifier.entry.partition(":")[0]
    if declared.canaries is not None:
        yield f"{where}.canaries", declared.canaries
    if isinstance(manifest, NormalizedManifestV2):
        given = manifest.execution.model_fields_set
        for name in ("dockerfile", "probe_path", "context"):
            if name in given:
                yield f"validation.execution.{name}", getattr(manifest.execution, name)
