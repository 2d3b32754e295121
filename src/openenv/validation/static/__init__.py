"""The static level: the package as files. Only the image's build runs any of its code.

The checks are those of RFC 008 that need no hub. Their evidence is read once: `ManifestEvidence`,
`Package` and `ImageBuilds`. Read `package.py` and `builds.py` (the evidence) first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from openenv.validation.graders import Evidence, Grader
from openenv.validation.manifest import AnyManifest
from openenv.validation.static import declarations, images, layout, pinning
from openenv.validation.static.builds import BuildSettings, ImageBuilds, build_twice
from openenv.validation.static.package import read_package

__all__ = ["collect", "graders"]


def graders() -> Sequence[Grader]:
    """Return the graders of this level, in the order of RFC 008."""
    manifest, resources, timeout, tasks = declarations.CHECKS
    build, hygiene, sbom, labels = images.CHECKS
    return [
        manifest,
        build,
        hygiene,
        *layout.CHECKS,
        sbom,
        labels,
        resources,
        timeout,
        *pinning.CHECKS,
        tasks,
    ]


def collect(
    root: Path,
    manifest: AnyManifest | None,
    evidence: Evidence,
    skip_build: bool,
    settings: BuildSettings,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Read a package and build its image twice, unless `skip_build`.

    Raises:
        PackageError: A file of the package cannot be read.
    """
    package = read_package(root, manifest, base=settings.base)
    evidence.put(package)
    if skip_build:
        evidence.put(ImageBuilds(skipped="--skip-build: its image was not built"))
    elif package.plan is None:
        evidence.put(ImageBuilds(skipped=f"image_build: {package.why_no_plan}"))
    else:
        evidence.put(build_twice(package.plan, settings, tell=tell))
