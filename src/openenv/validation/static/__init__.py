"""The static level: reads the package as files. Only the image build runs code of the package.

The checks are those of RFC 008 that need no hub. The evidence is collected once:
`ManifestEvidence`, `Package` and `ImageBuilds`. Read `package.py` and `builds.py` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from openenv.validation.graders import Evidence, FunctionGrader, Grader, Subject
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import Judgment
from openenv.validation.static import declarations, images, layout, pinning
from openenv.validation.static.builds import BuildSettings, ImageBuilds, build_twice
from openenv.validation.static.package import read_package
from openenv.validation.types import Level

__all__ = ["collect", "graders"]


def graders() -> Sequence[Grader]:
    """Return the graders of this level, in the order of RFC 008."""

    def check(name: str, judge: Callable[[Subject], Judgment]) -> Grader:
        return FunctionGrader(f"static.{name}", Level.STATIC, judge, reads_manifest=False)

    def check_declared(name: str, judge: Callable[[Subject], Judgment]) -> Grader:
        return FunctionGrader(f"static.{name}", Level.STATIC, judge, ("static.manifest",))

    return [
        check("manifest", declarations.judge_manifest),
        check("reproducible_build", images.judge_reproducible_build),
        check("image_hygiene", images.judge_image_hygiene),
        check("layout", layout.judge_layout),
        check("sbom", images.judge_sbom),
        check("oci_labels", images.judge_oci_labels),
        check_declared("resource_declaration", declarations.judge_resources),
        check_declared("timeout_ceiling", declarations.judge_timeout),
        check("dependency_pinning", pinning.judge_dependency_pinning),
        check_declared("task_distribution_pinning", declarations.judge_task_distribution),
    ]


def collect(
    root: Path,
    manifest: AnyManifest | None,
    evidence: Evidence,
    skip_build: bool,
    settings: BuildSettings,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Read a package, and build its image twice unless `skip_build` is set.

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
