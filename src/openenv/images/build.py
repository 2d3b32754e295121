"""Builds an environment's image: from the plan to a name that a provider can start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import openenv
from openenv._internal.dockerfile import LOCK, OURS
from openenv._internal.replacing import replacing
from openenv.images.context import copy_context, scratch_directory, set_times
from openenv.images.engines import BuildOptions, BuildRequest, Engine
from openenv.images.errors import BuildError, EngineError
from openenv.images.locking import LockOptions, LockResult, write_lock
from openenv.images.plan import BuildPlan
from openenv.images.sbom import READER, render_bill_of_materials

SBOM_LABEL = "dev.openenv.sbom.sha256"
LOCK_LABEL = "dev.openenv.lock.sha256"

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class BuiltImage:
    """A finished image.

    Attributes:
        id: Digest of the configuration. The same sources and packages give the same digest.
        tags: Names of the image.
        size_bytes: Size of the layers, uncompressed.
        user: The user that runs the image's program.
        engine: The program that built the image and stores it.
        locked: The locked packages; None if the Dockerfile resolves packages by itself.
        sbom_sha256: Digest of the bill of materials; None if none was requested.
        is_reproducible: Whether times and names that vary between builds were removed.
    """

    id: str
    tags: tuple[str, ...]
    size_bytes: int
    user: str
    engine: str
    locked: LockResult | None
    sbom_sha256: str | None
    is_reproducible: bool


def build(
    plan: BuildPlan,
    engine: Engine,
    tags: Sequence[str],
    *,
    options: BuildOptions | None = None,
    locking: LockOptions | None = None,
    sbom: Path | None = None,
    on_step: Progress = lambda number, of, text: None,
    say: Callable[[str], None] = lambda text: None,
) -> BuiltImage:
    """Build an image. After a failure or an interrupt no image has the requested names.

    Args:
        plan: The plan; see `openenv.images.plan.read_plan`.
        engine: The engine that builds.
        tags: Names for the image.
        options: Options for the engine.
        locking: Sources of packages.
        sbom: File for the bill of materials.
        on_step: Called for each step of the Dockerfile with its number, the number of steps, and
            its text.
        say: Called with a sentence about each phase before and after the steps.

    Raises:
        BuildError: The image could not be built.
    """
    how = locking or LockOptions()
    with scratch_directory() as scratch:
        context = scratch / "context"
        copy_context(plan.contents, context)
        locked = write_lock(plan, context, how, say) if plan.dockerfile.is_locked else None
        set_times(context, plan.epoch_s)
        (scratch / "Dockerfile").write_text(plan.dockerfile.text)
        labels = {**plan.labels, **({LOCK_LABEL: locked.sha256} if locked else {})}
        asked = BuildRequest(
            context,
            scratch / "Dockerfile",
            plan.epoch_s,
            plan.arguments,
            labels,
            plan.bases,
            options or BuildOptions(),
        )
        made = engine.build(asked, on_step)
    digest = None
    if sbom is not None:
        say("reading what is installed in it")
        bill = read_bill_of_materials(plan, engine, made, tags[0])
        try:
            with replacing(sbom) as partial:
                partial.write_bytes(bill)
        except OSError as error:
            raise BuildError(f"{sbom} could not be written: {error.strerror}") from error
        digest = hashlib.sha256(bill).hexdigest()
    more = {SBOM_LABEL: digest} if digest is not None else {}
    try:
        image = engine.seal(made, plan.epoch_s, more)
        is_reproducible = engine.is_reproducible()
    except BuildError as error:
        if more:
            raise
        say(f"its digest is of this build only: {error}")
        image, is_reproducible = made, False
    for tag in tags:
        engine.tag(image, tag)
    seen = engine.inspect(image)
    return BuiltImage(
        seen.id,
        tuple(tags),
        seen.size_bytes,
        seen.user,
        engine.program,
        locked,
        digest,
        is_reproducible,
    )


def push(built: BuiltImage, engine: Engine, registry: str, *, tls: bool = True) -> str:
    """Push an image to a registry and return the name there.

    Args:
        built: The image.
        engine: The engine that built the image.
        registry: A registry such as ``ghcr.io/somebody``, to which the image's first name is
            appended.
        tls: Whether the registry must speak TLS.

    Raises:
        BuildError: The registry refuses the image.
    """
    name = f"{registry.rstrip('/')}/{built.tags[0].rpartition('/')[2]}"
    engine.tag(built.id, name)
    engine.push(name, tls=tls)
    return name


def list_context(plan: BuildPlan) -> list[tuple[str, int | None]]:
    """Return the build context's files with sizes; None for files that the build generates."""
    files: list[tuple[str, int | None]] = [
        (file, (plan.contents.root / file).lstat().st_size) for file in plan.contents.files
    ]
    if plan.dockerfile.is_locked:
        made = [LOCK, f"{OURS}/pip.conf", f"{OURS}/wheels/{plan.package}.whl"]
        if plan.workspace is not None:
            made.append(f"{OURS}/wheels/openenv.whl")
        files += [(path, None) for path in sorted(made)]
    return files


def read_bill_of_materials(plan: BuildPlan, engine: Engine, image: str, name: str) -> bytes:
    """Return the bill of materials of an image (CycloneDX 1.5, JSON).

    Args:
        plan: The plan that the image was built from.
        engine: The engine that stores the image.
        image: The image's id.
        name: The image's name in the bill.

    Raises:
        BuildError: The image has no Python, which has to list the packages.
    """
    try:
        found = json.loads(engine.run_python(image, READER))
    except EngineError:
        raise
    except BuildError as error:
        raise BuildError(
            "what is installed in the image cannot be read",
            hint="a bill of materials is made by Python in the image, which has to have it",
            log=error.log.splitlines(),
        ) from error
    return render_bill_of_materials(
        found,
        name=name,
        version=plan.labels.get("org.opencontainers.image.version", ""),
        epoch_s=plan.epoch_s,
        tool_version=openenv.__version__,
    )
