"""`openenv push`: an environment as a Space on the Hub, or as an image in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from openenv.cli._console import CommandError, MisuseError, emit, say
from openenv.cli._options import argument, option, takes_options
from openenv.cli._spaces import (
    SpaceUpload,
    parse_pairs,
    parse_secrets,
    push_spaces,
    report_hub_errors,
    warn_of_unscanned,
)
from openenv.cli.commands.build import (
    EngineName,
    build_with_progress,
    check_lock,
    check_openenv,
    describe_plan,
)

if TYPE_CHECKING:
    from openenv.images import BuildPlan

__all__ = ["push"]

# ------------------------------------------------------------------ its options


# ------------------------------------------------------------------ the command


@takes_options
def push(
    environment: Path = argument(
        Path(), metavar="ENV_DIR", help="A directory with an openenv.yaml."
    ),
    repo_id: str | None = option(
        None,
        "-r",
        metavar="OWNER/NAME",
        help="Name of the Space; by default the name in openenv.yaml, in your account.",
    ),
    base_image: str | None = option(
        None, "-b", metavar="IMAGE", help="Base image of the Dockerfile's final stage."
    ),
    interface: bool = option(False, help="Show the web page (the default for Spaces)."),
    no_interface: bool = option(False, help="Hide the web page."),
    registry: str | None = option(
        None,
        metavar="REGISTRY",
        help="Build an image and push it to this registry instead, such as ghcr.io/somebody.",
    ),
    private: bool = option(False, help="Create the Space as private."),
    create_pr: bool = option(False, help="Propose the upload as a pull request to the Space."),
    exclude: Path | None = option(
        None, metavar="FILE", help="File of patterns to leave out, in the syntax of .gitignore."
    ),
    delete: list[str] | None = option(
        None, metavar="GLOB", help="Files to delete from the Space, except pushed ones; repeatable."
    ),
    hardware: str | None = option(
        None,
        "-H",
        metavar="NAME",
        help="Hardware of the Space: cpu-basic, cpu-upgrade, t4-small, ...",
    ),
    count: int = option(1, "-n", min=1, help="Number of Spaces to push to: NAME-1, NAME-2, ..."),
    env_var: list[str] | None = option(
        None,
        "-e",
        metavar="NAME=VALUE",
        help="Public variable of the Space; overrides those of openenv.yaml. Repeatable.",
    ),
    secret: list[str] | None = option(
        None,
        metavar="NAME[=VALUE]",
        help="Secret of the Space; without a value, taken from this shell's variable. Repeatable.",
    ),
    allow_secret: list[str] | None = option(
        None,
        metavar="PATH[:LINE]",
        help="Place that looks like a secret and is approved; repeatable.",
    ),
    message: str | None = option(None, "-m", help="Commit message."),
    engine: EngineName | None = option(
        None, help="Program that builds the image for --registry; by default the first found."
    ),
    push_without_tls: bool = option(False, help="Let --registry use plain HTTP."),
    openenv: Path | None = option(
        None,
        metavar="PATH|running|locked",
        help="With --registry, the OpenEnv in the image, as for `openenv build`. For a "
        "Space, `locked` pushes an environment whose uv.lock has an OpenEnv of "
        "another series.",
    ),
    dry_run: bool = option(False, help="Show the planned upload and changes, and do nothing."),
    as_json: bool = option(False, "--json", help="Print a line of JSON per Space."),
) -> None:
    """Publish an environment as a Space on the Hub, or as an image in a registry.

    Files that seem to hold secrets are refused. An upload is a single commit. Run the command again
    to resume an interrupted upload.

    Examples:
        openenv push my_env  # to a Space of the same name in your account
        openenv push my_env -r acme/my_env --private --secret LLM_KEY
        openenv push my_env --registry ghcr.io/acme
    """
    if interface and no_interface:
        raise MisuseError("--interface and --no-interface exclude each other")
    if exclude is not None and not exclude.is_file():
        raise MisuseError(f"--exclude {exclude} does not exist")
    if not environment.is_dir():
        raise MisuseError(f"{environment} is not a directory")
    check_openenv(openenv)
    if registry is not None:
        _refuse(
            "--registry",
            bool(env_var or secret),
            count,
            {
                "--repo-id": repo_id,
                "--private": private,
                "--create-pr": create_pr,
                "--hardware": hardware,
                "--delete": delete,
                "--exclude": exclude,
                "--message": message,
            },
        )
        shown = True if interface else False if no_interface else None
        with report_hub_errors():
            _push_image(
                environment,
                registry,
                base_image,
                shown,
                engine,
                not push_without_tls,
                allow_secret or (),
                openenv,
                dry_run,
                as_json,
            )
        return
    if push_without_tls or engine is not None:
        raise MisuseError("--push-without-tls and --engine want --registry")
    from openenv.images.running import LOCKED

    if openenv not in (None, LOCKED):
        raise MisuseError(
            f"--openenv {openenv} requires --registry: a Space installs what the environment names"
        )
    if create_pr:
        _refuse("--create-pr", bool(env_var or secret), count, {"--hardware": hardware})
    asked = SpaceUpload(
        environment,
        repo_id,
        count,
        exclude,
        base_image,
        not no_interface,
        private,
        hardware,
        parse_pairs("--env-var", env_var),
        parse_secrets("--secret", secret),
        create_pr,
        tuple(delete or ()),
        tuple(allow_secret or ()),
        message,
        openenv,
    )
    push_spaces(asked, dry_run=dry_run, as_json=as_json, wait_s=None)


def _refuse(option: str, has_settings: bool, count: int, others: dict[str, object]) -> None:
    if has_settings:
        raise MisuseError(f"{option} excludes --env-var and --secret, which are of a Space")
    if count > 1:
        raise CommandError(f"{option} excludes --count {count}")
    for name, value in others.items():
        if value:
            raise MisuseError(f"{option} excludes {name}")


# ------------------------------------------------------------------ to a registry


def _push_image(
    environment: Path,
    registry: str,
    base_image: str | None,
    interface: bool | None,
    engine: EngineName | None,
    tls: bool,
    let_pass: Sequence[str],
    openenv: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    from openenv.hub import SecretsFoundError, check_structure, find_secrets
    from openenv.hub.secrets import split_allowed
    from openenv.images import BuildOptions, LockOptions, find_builder
    from openenv.images import push as push_image

    if "://" in registry:
        raise MisuseError(
            f"--registry takes a registry without its scheme, not {registry}",
            hint=f"--registry {registry.partition('://')[2]}",
        )
    manifest = check_structure(environment)
    plan = _plan(environment, base_image, interface)
    findings, _ = split_allowed(find_secrets(plan.contents.root, plan.contents.files), let_pass)
    if findings:
        raise SecretsFoundError(findings)
    warn_of_unscanned(plan.contents.root, plan.contents.files)
    describe_plan(plan)
    if manifest.get("variables"):
        say(
            f"a registry has no variables: {', '.join(manifest['variables'])} of openenv.yaml are "
            "to be given to the server when it starts",
            style="yellow",
        )
    tag = f"{_image_name(str(manifest['name']))}:latest"
    if dry_run:
        name = f"{registry.rstrip('/')}/{tag}"
        if as_json:
            emit({"image": name, "files": list(plan.contents.files)})
        else:
            typer.echo(plan.dockerfile.text.rstrip("\n"))
        say(f"{len(plan.contents.files)} files, for {name}; nothing was done")
        return
    if plan.dockerfile.is_locked:
        check_lock(plan, openenv)
    builder = find_builder(None if engine is None else engine.value)
    built = build_with_progress(plan, builder, [tag], BuildOptions(), LockOptions(openenv), None)
    say(f"pushing it to {registry}")
    name = push_image(built, builder, registry, tls=tls)
    if as_json:
        emit({"image": name, "id": f"sha256:{built.id}", "size_bytes": built.size_bytes})
    else:
        typer.echo(name)


def _plan(environment: Path, base_image: str | None, interface: bool | None) -> BuildPlan:
    """Return the build plan, with the Dockerfile changed as the options say."""
    from openenv.hub.dockerfiles import replace_base, set_interface
    from openenv.images import read_plan
    from openenv.images.dockerfile import ParsedDockerfile

    plan = read_plan(environment, default_dockerfile="")
    text = plan.dockerfile.text
    if base_image is not None:
        text = replace_base(text, base_image)
    if interface is not None:
        text = set_interface(text, interface)
    return replace(plan, dockerfile=ParsedDockerfile(text, plan.dockerfile.source))


def _image_name(name: str) -> str:
    kept = "".join(one if one.isalnum() or one in "._-" else "-" for one in name.lower())
    return kept.strip("._-") or "environment"
