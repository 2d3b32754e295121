"""Building a package's image, twice, and reading what is in it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openenv.images import BuildError, Built, Engine, Locking, Options, build, find_builder
from openenv.images.engines import Image
from openenv.images.plan import Plan

__all__ = ["BuildSettings", "ImageBuilds", "build_twice", "is_means"]

TAG = "localhost/openenv-validate-{package}:{number}"
MEANS = (
    "base image",
    "reaches no network",
    "is not installed",
    "is not on this machine",
    "no engine can build",
)


@dataclass(frozen=True)
class BuildSettings:
    """What this machine needs to build images; see `openenv build`.

    Attributes:
        base: The image to start from, where not the one that the Dockerfile says.
        options: How the engine goes about it.
        locking: Where packages come from.
    """

    base: str | None = None
    options: Options = field(default_factory=Options)
    locking: Locking = field(default_factory=Locking)


@dataclass(frozen=True)
class ImageBuilds:
    """What came of building a package: evidence of the static level.

    Attributes:
        skipped: Why nothing was built: what is missing, or who did not want it; None where
            something was.
        failure: Why it could not be built, where that is the package's fault.
        hint: What to do about that.
        built: The first build, and the second, which repeated every step.
        images: What the engine says of the two.
        bill: The bill of materials, as CycloneDX has it; None where it could not be made.
        why_no_bill: Why not.
    """

    skipped: str | None = None
    failure: str | None = None
    hint: str | None = None
    built: tuple[Built, ...] = ()
    images: tuple[Image, ...] = ()
    bill: Mapping[str, Any] | None = field(default=None, repr=False)
    why_no_bill: str = ""

    @property
    def image_ref(self) -> str | None:
        """The digest of what was built; None where nothing was."""
        return f"sha256:{self.built[0].id}" if self.built else None

    def forget(self) -> None:
        """Remove what was built, names and images, from its engine."""
        for built in self.built:
            for tag in built.tags:
                subprocess.run(  # nosec B603  # no shell; an engine
                    [built.engine, "rmi", tag], capture_output=True, stdin=subprocess.DEVNULL
                )


def build_twice(
    plan: Plan,
    settings: BuildSettings | None = None,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> ImageBuilds:
    """Build an image, list what is in it, and build it again without what is kept of the first.

    Args:
        plan: What is built.
        settings: What this machine needs for it.
        tell: Told what is done now.
    """
    how = settings or BuildSettings()
    tags = [TAG.format(package=plan.package.replace("_", "-").lower(), number=n) for n in (1, 2)]
    again = replace(how.options, no_cache=True)
    try:
        engine = find_builder()
        tell("building its image")
        first = build(plan, engine, tags[:1], options=how.options, locking=how.locking)
        bill, why_no_bill = _bill(plan, engine, tags[0], how, tell)
        tell("building its image once more, from nothing")
        second = build(plan, engine, tags[1:], options=again, locking=how.locking)
    except BuildError as error:
        if is_means(error):
            return ImageBuilds(skipped=f"image_build: {error}", hint=error.hint)
        return ImageBuilds(failure=str(error), hint=error.hint)
    images = (engine.inspect(first.id), engine.inspect(second.id))
    return ImageBuilds(built=(first, second), images=images, bill=bill, why_no_bill=why_no_bill)


def _bill(
    plan: Plan, engine: Engine, tag: str, how: BuildSettings, tell: Callable[[str], None]
) -> tuple[Mapping[str, Any] | None, str]:
    """The bill of materials of what was built, out of the engine's cache."""
    tell("listing what is in it")
    with tempfile.TemporaryDirectory(prefix="openenv-bill-") as folder:
        file = Path(folder) / "bill.json"
        try:
            build(plan, engine, [tag], options=how.options, locking=how.locking, sbom=file)
        except BuildError as error:
            return None, str(error)
        content: Mapping[str, Any] = json.loads(file.read_bytes())
    return content, ""


def is_means(error: BuildError) -> bool:
    """Whether a build failed for what this machine lacks, and not by the package's fault."""
    own_words = str(error).removesuffix(error.log) + (error.hint or "")
    return any(word in own_words for word in MEANS)
