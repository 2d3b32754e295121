"""`openenv build`: container images of environments, for Docker, Podman or a cluster."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from openenv._internal.redaction import redact, register_secrets_of
from openenv.cli._console import CommandError, MisuseError, emit, say, warn
from openenv.cli._options import argument, option, takes_options
from openenv.cli._progress import display
from openenv.cli._spaces import parse_pairs

if TYPE_CHECKING:
    from openenv.images import BuildOptions, BuildPlan, BuiltImage, Engine, LockOptions

TAG = re.compile(
    r"(?=.{1,255}$)([\w.-]+(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?"
)


class EngineName(str, Enum):
    """The engines that build images."""

    DOCKER = "docker"
    PODMAN = "podman"
    BUILDAH = "buildah"


@takes_options
def build(
    environment: Path = argument(
        Path(), metavar="ENV_DIR", help="Directory with an openenv.yaml; by default this one."
    ),
    tag: list[str] | None = option(
        None,
        "-t",
        help="Name of the image, as NAME:TAG; repeatable. By default echo-env:latest and "
        "openenv-echo:latest, for echo_env.",
    ),
    engine: EngineName | None = option(
        None, help="Program that builds the image; by default the first found."
    ),
    base: str | None = option(
        None,
        metavar="IMAGE",
        help="Base image with Python 3.10 or later, passed as the Dockerfile's ARG BASE. By "
        "default the Dockerfile's own.",
    ),
    dockerfile: Path | None = option(
        None,
        "-f",
        help="Dockerfile to build; by default server/Dockerfile or Dockerfile in ENV_DIR, or else "
        "a built-in one.",
    ),
    context: Path | None = option(
        None, "-c", help="Directory of the build context; by default ENV_DIR."
    ),
    build_arg: list[str] | None = option(
        None, metavar="NAME=VALUE", help="Value of an ARG of the Dockerfile; repeatable."
    ),
    label: list[str] | None = option(
        None, metavar="NAME=VALUE", help="Label to add to the image; repeatable."
    ),
    no_cache: bool = option(False, help="Run every step again, without cached layers."),
    platform: str | None = option(
        None,
        metavar="OS/ARCH",
        help="Platform of the image, such as linux/arm64; by default this machine's.",
    ),
    network: str | None = option(
        None, help="Network of the build steps, such as host; by default the engine's."
    ),
    volume: list[str] | None = option(
        None, metavar="FROM:TO[:ro]", help="Mount for the build steps, with podman and buildah."
    ),
    ca_file: Path | None = option(
        None,
        help="CA certificates (PEM) that replace the base image's during the build. With "
        "Docker they apply to pip only.",
    ),
    index_url: str | None = option(None, metavar="URL", help="Package index to install from."),
    wheels: Path | None = option(
        None, metavar="DIRECTORY", help="Directory of wheels to install from, instead of an index."
    ),
    openenv: Path | None = option(
        None,
        metavar="PATH|running|locked",
        help="OpenEnv to install: a wheel or a checkout, the running version, or that of "
        "uv.lock. By default the checkout that contains ENV_DIR, or else the version "
        "in pyproject.toml and uv.lock, which must be of the running series.",
    ),
    push: str | None = option(
        None,
        metavar="REGISTRY",
        help="Push the image to this registry afterwards, such as ghcr.io/somebody.",
    ),
    push_without_tls: bool = option(False, help="Let --push use plain HTTP."),
    sbom: Path | None = option(
        None,
        metavar="FILE",
        help="Write a bill of materials (CycloneDX) of the image to this file.",
    ),
    offline: bool = option(False, help="Contact no registry and no package index; see --wheels."),
    as_json: bool = option(False, "--json", help="Print the result as JSON."),
    only_print: bool = option(
        False, "--print", help="Print the Dockerfile and the build context, and build nothing."
    ),
) -> None:
    """Build the image of an environment.

    Examples:
        openenv build my_env --print  # the Dockerfile and the files, without a build
        openenv build my_env --tag my-env:1 --push ghcr.io/somebody
    """
    from openenv import images
    from openenv.images import BuildError, BuildOptions, LockOptions

    arguments = parse_pairs("--build-arg", build_arg)
    register_secrets_of(arguments)
    for name, path in (("ca-file", ca_file), ("wheels", wheels)):
        if path is not None and not path.exists():
            raise MisuseError(f"--{name} {path} does not exist")
    check_openenv(openenv)
    _check(tag, push, push_without_tls, offline)
    try:
        plan = images.read_plan(
            environment,
            default_dockerfile=own_dockerfile(),
            dockerfile=dockerfile,
            context=context,
            base=base,
            arguments=arguments,
            labels=parse_pairs("--label", label),
        )
        tags = tuple(tag or images.default_tags(plan))
        describe_plan(plan)
        if only_print:
            _print(plan, tags, as_json)
            return
        locking = LockOptions(openenv, index_url, wheels, ca_file, offline)
        if plan.dockerfile.is_locked:
            check_lock(plan, openenv)
        else:
            _check_unlocked(locking)
        builder = images.find_builder(None if engine is None else engine.value)
        options = BuildOptions(
            platform=platform,
            network="none" if offline and network is None else network,
            volumes=volume or (),
            ca_file=ca_file,
            no_cache=no_cache,
            offline=offline,
        )
        began = time.monotonic()
        built = build_with_progress(plan, builder, tags, options, locking, sbom)
        pushed = None
        if push is not None:
            say(f"pushing it to {push}")
            pushed = images.push(built, builder, push, tls=not push_without_tls)
    except BuildError as error:
        raise CommandError(str(error), hint=error.hint) from error
    _print_result(built, time.monotonic() - began)
    if as_json:
        emit(_as_data(plan, built, pushed, sbom, time.monotonic() - began))
    else:
        typer.echo(pushed or built.tags[0])


def build_with_progress(
    plan: BuildPlan,
    builder: Engine,
    tags: Sequence[str],
    options: BuildOptions,
    locking: LockOptions,
    sbom: Path | None,
) -> BuiltImage:
    """Build an image, and show the progress."""
    from openenv import images

    say(f"building {', '.join(tags)} by {builder.program}, from {', '.join(plan.bases)}")
    with display() as shown:
        shown.begin("build")

        def on_step(number: int, of: int, text: str) -> None:
            shown.update(number, redact(text[:100]))

        built = images.build(
            plan,
            builder,
            tags,
            options=options,
            locking=locking,
            sbom=sbom,
            on_step=on_step,
            say=say,
        )
        shown.finish(f"{built.size_bytes / 1e6:,.0f} MB")
    return built


def check_lock(plan: BuildPlan, openenv: Path | None) -> None:
    """Refuse to build with an OpenEnv of another series, unless the user chose a version.

    Raises:
        BuildError: ``uv.lock`` names another series.
    """
    from openenv.images.running import check_locked

    if openenv is None and plan.workspace is None:
        check_locked(plan.environment)


def own_dockerfile() -> str:
    """Return the Dockerfile of `openenv init`, with the package's name as a placeholder."""
    from openenv.cli._template import read_template

    return read_template("common", "server/Dockerfile")


def _check(tags: Sequence[str] | None, push: str | None, plain: bool, offline: bool) -> None:
    for tag in tags or ():
        if not TAG.fullmatch(tag):
            raise MisuseError(
                f"{tag!r} cannot be the name of an image",
                hint="lower-case letters, digits, . _ - and /, and a tag after a colon: "
                "my-env:latest",
            )
    if push is not None and "://" in push:
        raise MisuseError(
            f"--push takes a registry without its scheme, not {push}",
            hint=f"--push {push.partition('://')[2]}",
        )
    if push is not None and offline:
        raise MisuseError("--push and --offline exclude each other")
    if plain and push is None:
        raise MisuseError("--push-without-tls requires --push")


def check_openenv(told: Path | None) -> None:
    """Refuse a value of ``--openenv`` that is neither a keyword nor an existing path."""
    from openenv.images.running import LOCKED, RUNNING

    if told not in (None, RUNNING, LOCKED) and not told.exists():
        raise MisuseError(
            f"--openenv {told} does not exist",
            hint="name a wheel or a checkout of OpenEnv, or say running or locked",
        )


def _check_unlocked(locking: LockOptions) -> None:
    for name in ("openenv", "index_url", "wheels"):
        if getattr(locking, name) is not None:
            raise MisuseError(
                f"--{name.replace('_', '-')} has no effect on a Dockerfile that ignores the lock",
                hint="have it install .openenv/requirements.lock, as that of `openenv init` does",
            )


def describe_plan(plan: BuildPlan) -> None:
    """Report what may surprise in a plan: files left out, and packages not locked."""
    from openenv.images.context import list_paths
    from openenv.images.running import check_locked

    dockerfile = plan.dockerfile
    say(f"Dockerfile: {dockerfile.source}")
    if plan.contents.secrets:
        warn(
            f"left out, as they look like secrets: {list_paths(plan.contents.secrets)}; pass them "
            "to the server at its start"
        )
    if not dockerfile.is_locked:
        warn(
            "this Dockerfile installs by itself, so what is installed is not locked"
            + ("" if plan.workspace is None else ", and is not this checkout's OpenEnv")
        )
        difference = check_locked(plan.environment, is_fatal=False)
        if difference is not None:
            warn(difference)
    unknown = dockerfile.undeclared(plan.arguments)
    if unknown:
        known = ", ".join(dockerfile.arguments()) or "none"
        warn(
            f"the Dockerfile has no ARG {', '.join(unknown)}, so it makes no difference; "
            f"it has {known}"
        )


def _print(plan: BuildPlan, tags: Sequence[str], as_json: bool) -> None:
    from openenv.images.build import list_context

    files = list_context(plan)
    contents = plan.contents
    if as_json:
        emit(
            {
                "tags": list(tags),
                "dockerfile": plan.dockerfile.text,
                "context": [{"path": path, "size_bytes": size} for path, size in files],
                "left_out": list(contents.left_out),
                "secrets": list(contents.secrets),
                "arguments": {name: redact(value) for name, value in plan.arguments.items()},
                "labels": dict(plan.labels),
            }
        )
        return
    sys.stdout.write(plan.dockerfile.text.rstrip("\n") + "\n\n")
    for path, size in files:
        sys.stdout.write(f"# {'made' if size is None else size:>9}  {path}\n")
    say(f"{len(files)} files, {contents.size_bytes / 1e3:,.1f} kB; nothing was built")


def _print_result(built: BuiltImage, seconds: float) -> None:
    locked = built.locked
    if locked is not None:
        of = f", held to {locked.held_to}" if locked.held_to is not None else ""
        say(f"locked: {locked.packages} packages{of}")
        if locked.kept is not None:
            say(f"kept: {locked.kept}, for the same packages the next time")
    if built.user.partition(":")[0] in ("", "0", "root"):
        warn("its program runs as root: give its Dockerfile a USER")
    if not built.is_reproducible:
        say(f"{built.engine} gave its files the time of this build: another gives another digest")
    say(
        f"{built.tags[0]}: {built.size_bytes / 1e6:,.0f} MB, sha256:{built.id[:12]}, "
        f"{seconds:.1f} s",
        style="green",
    )


def _as_data(
    plan: BuildPlan, built: BuiltImage, pushed: str | None, sbom: Path | None, seconds: float
) -> dict[str, Any]:
    locked = built.locked
    return {
        "image": built.tags[0],
        "tags": list(built.tags),
        "id": f"sha256:{built.id}",
        "is_reproducible": built.is_reproducible,
        "size_bytes": built.size_bytes,
        "user": built.user,
        "engine": built.engine,
        "bases": plan.bases,
        "dockerfile": plan.dockerfile.source,
        "mode": "standalone" if plan.workspace is None else "in-repo",
        "left_out": list(plan.contents.left_out),
        "secrets": list(plan.contents.secrets),
        "lock": None if locked is None else {"sha256": locked.sha256, "packages": locked.packages},
        "uv_lock": None if locked is None or locked.kept is None else str(locked.kept),
        "sbom": sbom and {"file": str(sbom), "sha256": built.sbom_sha256, "format": "CycloneDX"},
        "pushed": pushed,
        "seconds": round(seconds, 1),
    }
