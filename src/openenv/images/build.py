"""Building an image of an environment, from its plan to a name that a provider can start."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import openenv
from openenv.images.context import scratch_directory, set_times, stage
from openenv.images.dockerfile import LOCK, OURS
from openenv.images.engines import Engine, Options, Request
from openenv.images.errors import BuildError, EngineError
from openenv.images.locking import Locked, Locking, lock
from openenv.images.plan import Plan
from openenv.images.sbom import READER, bill_of_materials

__all__ = ["Built", "Progress", "bill_of", "build", "listing_of", "push"]

SBOM_LABEL = "dev.openenv.sbom.sha256"
LOCK_LABEL = "dev.openenv.lock.sha256"

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Built:
    """An image that was built.

    Attributes:
        id: The digest of its configuration: the same sources and packages give the same.
        tags: Its names.
        size_bytes: Of its layers, uncompressed.
        user: Who its program runs as.
        engine: The program that built it, and has it.
        locked: What was locked; None where its Dockerfile resolves by itself.
        sbom_sha256: Of its bill of materials; None where none was asked for.
        is_reproducible: Whether everything in it that is by chance was taken out.
    """

    id: str
    tags: tuple[str, ...]
    size_bytes: int
    user: str
    engine: str
    locked: Locked | None
    sbom_sha256: str | None
    is_reproducible: bool


def build(
    plan: Plan,
    engine: Engine,
    tags: Sequence[str],
    *,
    options: Options | None = None,
    locking: Locking | None = None,
    sbom: Path | None = None,
    on_step: Progress = lambda number, of, text: None,
    say: Callable[[str], None] = lambda text: None,
) -> Built:
    """Build an image. Where it fails, or is interrupted, nothing has its name.

    Args:
        plan: What is built; see `openenv.images.plan.read_plan`.
        engine: By what.
        tags: The names that it gets.
        options: How the engine is to go about it.
        locking: Where packages come from.
        sbom: The file for its bill of materials.
        on_step: Told of each step of the Dockerfile: its number, of how many, and what it does.
        say: Told, in words, of everything before and after.

    Raises:
        BuildError: It could not be built.
    """
    how = locking or Locking()
    with scratch_directory() as scratch:
        context = scratch / "context"
        stage(plan.contents, context)
        locked = lock(plan, context, how, say) if plan.dockerfile.is_locked else None
        set_times(context, plan.epoch_s)
        (scratch / "Dockerfile").write_text(plan.dockerfile.text)
        labels = {**plan.labels, **({LOCK_LABEL: locked.sha256} if locked else {})}
        asked = Request(
            context,
            scratch / "Dockerfile",
            plan.epoch_s,
            plan.arguments,
            labels,
            plan.bases,
            options or Options(),
        )
        made = engine.build(asked, on_step)
    digest = None
    if sbom is not None:
        say("reading what is installed in it")
        digest = _write_bill(bill_of(plan, engine, made, tags[0]), sbom)
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
    return Built(
        seen.id,
        tuple(tags),
        seen.size_bytes,
        seen.user,
        engine.program,
        locked,
        digest,
        is_reproducible,
    )


def push(built: Built, engine: Engine, registry: str, *, tls: bool = True) -> str:
    """Push an image to a registry, and give the name that it has there.

    Args:
        built: The image.
        engine: What built it.
        registry: Such as ``ghcr.io/somebody``; the image's first name goes after it.
        tls: Whether it must speak TLS.

    Raises:
        BuildError: The registry does not take it.
    """
    name = f"{registry.rstrip('/')}/{built.tags[0].rpartition('/')[2]}"
    engine.tag(built.id, name)
    engine.push(name, tls=tls)
    return name


def listing_of(plan: Plan) -> list[tuple[str, int | None]]:
    """The files of the build's context, and their sizes; None for what the build makes."""
    files: list[tuple[str, int | None]] = [
        (file, (plan.contents.root / file).lstat().st_size) for file in plan.contents.files
    ]
    if plan.dockerfile.is_locked:
        made = [LOCK, f"{OURS}/pip.conf", f"{OURS}/wheels/{plan.package}.whl"]
        if plan.workspace is not None:
            made.append(f"{OURS}/wheels/openenv.whl")
        files += [(path, None) for path in sorted(made)]
    return files


def bill_of(plan: Plan, engine: Engine, image: str, name: str) -> bytes:
    """What is installed in an image, as a bill of materials (CycloneDX 1.5, JSON).

    Args:
        plan: What it was built from.
        engine: What has it.
        image: Its id.
        name: What the bill calls it.

    Raises:
        BuildError: It cannot be looked into: Python is not in it.
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
    return bill_of_materials(
        found,
        name=name,
        version=plan.labels.get("org.opencontainers.image.version", ""),
        epoch_s=plan.epoch_s,
        tool_version=openenv.__version__,
    )


def _write_bill(data: bytes, file: Path) -> str:
    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        unfinished.write_bytes(data)
        shutil.move(unfinished, file)
    except OSError as error:
        raise BuildError(f"{file} could not be written: {error.strerror}") from error
    return hashlib.sha256(data).hexdigest()
