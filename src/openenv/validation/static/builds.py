"""Image builds: build a package's image twice, and list its contents."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from openenv.images import (
    BuildError,
    BuildOptions,
    BuildPlan,
    BuiltImage,
    Engine,
    EngineError,
    LockOptions,
    build,
    default_tags,
    find_builder,
)
from openenv.images.build import read_bill_of_materials
from openenv.images.engines import ENGINES, EngineImage
from openenv.providers.owners import is_orphan, own_name

logger = logging.getLogger(__name__)

REPOSITORY = "localhost/openenv-validate-"
MEANS = (
    "base image",
    "reaches no network",
    "is not installed",
    "is not on this machine",
    "no engine can build",
)


@dataclass(frozen=True)
class BuildSettings:
    """Settings for building images on this machine; see `openenv build`."""

    base: str | None = None  # a base image that replaces the Dockerfile's
    options: BuildOptions = field(default_factory=BuildOptions)  # options of the engine
    locking: LockOptions = field(default_factory=LockOptions)  # the sources of packages


@dataclass(frozen=True)
class ImageBuilds:
    """The result of building a package twice: evidence of the static level."""

    # Why no image was built although the package is not at fault; None if one was.
    skipped: str | None = None
    failure: str | None = None  # why the build failed, if the package is at fault
    hint: str | None = None  # what to do about the failure
    built: tuple[BuiltImage, ...] = ()  # the first build, and the second, made without the cache
    images: tuple[EngineImage, ...] = ()  # the engine's descriptions of the two builds
    # The CycloneDX bill of materials; None if it could not be made.
    bill: Mapping[str, Any] | None = field(default=None, repr=False)
    why_no_bill: str = ""

    @property
    def image_ref(self) -> str | None:
        """The digest of the first build; None if no image was built."""
        return f"sha256:{self.built[0].id}" if self.built else None

    def forget(self) -> None:
        """Remove the names of the images from the engine, and images without other names."""
        if self.built:
            tags = {tag for built in self.built for tag in built.tags}
            _untag(ENGINES[self.built[0].engine], tags.__contains__)


def build_twice(
    plan: BuildPlan,
    settings: BuildSettings | None = None,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> ImageBuilds:
    """Build an image, list its contents, and build the image again without the cache.

    The images have names unique to this run until `ImageBuilds.forget` removes the names. If a step
    fails, the names are removed at once; if this process is killed, the next run removes them.
    """
    how = settings or BuildSettings()
    again = replace(how.options, no_cache=True)
    tags = _tags(plan.package)
    try:
        engine = find_builder()
        _untag(engine, _is_orphaned)
        with ExitStack() as stack:
            stack.callback(_untag, engine, tags.__contains__)
            tell("building its image")
            first = build(plan, engine, tags[:1], options=how.options, locking=how.locking)
            tell("listing what is in it")
            bill, why_no_bill = None, ""
            try:
                bill = json.loads(
                    read_bill_of_materials(plan, engine, first.id, default_tags(plan)[0])
                )
            except EngineError:
                raise
            except BuildError as error:
                why_no_bill = str(error)
            tell("building its image once more, from nothing")
            second = build(plan, engine, tags[1:], options=again, locking=how.locking)
            images = (engine.inspect(first.id), engine.inspect(second.id))
            stack.pop_all()
    except BuildError as error:
        if is_machine_fault(error):
            return ImageBuilds(skipped=f"image_build: {error}", hint=error.hint)
        return ImageBuilds(failure=str(error), hint=error.hint)
    return ImageBuilds(built=(first, second), images=images, bill=bill, why_no_bill=why_no_bill)


def _tags(package: str) -> list[str]:
    """Return unique names for two builds, which include the owner."""
    run = f"{own_name().replace('/', '_')}_{secrets.token_hex(4)}"
    name = f"{REPOSITORY}{package.replace('_', '-').lower()}"
    return [f"{name}:{run}_{number}" for number in (1, 2)]


def _is_orphaned(name: str) -> bool:
    """Return whether a name belongs to a run whose process was killed."""
    repository, _, tag = name.rpartition(":")
    owner = "/".join(tag.split("_")[:-2])
    return repository.startswith(REPOSITORY) and is_orphan(owner)


def _untag(engine: Engine, is_meant: Callable[[str], bool]) -> None:
    """Remove names. Failures are only logged, because no verdict depends on them."""
    try:
        for name in filter(is_meant, engine.names()):
            with suppress(EngineError):  # another run may have removed the name
                engine.untag(name)
        left = list(filter(is_meant, engine.names()))
    except EngineError as error:
        logger.warning("images of validations may be left: %s", error)
        return
    if left:
        logger.warning("images of validations could not be removed: %s", ", ".join(left))


def is_machine_fault(error: BuildError) -> bool:
    """Return whether a build failed because of this machine, not because of the package."""
    if isinstance(error, EngineError):
        return True
    own_words = str(error).removesuffix(error.log) + (error.hint or "")
    return any(word in own_words for word in MEANS)
