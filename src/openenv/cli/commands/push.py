"""`openenv push`: an environment as a Space on the Hub, or as an image in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openenv.cli._console import MISUSED, CommandError, emit, say
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

Directory = Annotated[
    Path, typer.Argument(help="A directory with an openenv.yaml.", metavar="ENV_DIR")
]
RepoId = Annotated[
    str | None,
    typer.Option(
        "--repo-id",
        "-r",
        metavar="OWNER/NAME",
        help="Name of the Space; by default the name in openenv.yaml, in your account.",
    ),
]
BaseImage = Annotated[
    str | None,
    typer.Option(
        "--base-image", "-b", metavar="IMAGE", help="Base image of the Dockerfile's final stage."
    ),
]
Interface = Annotated[
    bool, typer.Option("--interface", help="Show the web page (the default for Spaces).")
]
NoInterface = Annotated[bool, typer.Option("--no-interface", help="Hide the web page.")]
Registry = Annotated[
    str | None,
    typer.Option(
        metavar="REGISTRY",
        help="Build an image and push it to this registry instead, such as ghcr.io/somebody.",
    ),
]
Private = Annotated[bool, typer.Option("--private", help="Create the Space as private.")]
CreatePr = Annotated[
    bool, typer.Option("--create-pr", help="Propose the upload as a pull request to the Space.")
]
Exclude = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File of patterns to leave out, in the syntax of .gitignore."
    ),
]
Delete = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GLOB", help="Files to delete from the Space, except pushed ones; repeatable."
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        "-H",
        metavar="NAME",
        help="Hardware of the Space: cpu-basic, cpu-upgrade, t4-small, ...",
    ),
]
Count = Annotated[
    int,
    typer.Option("--count", "-n", min=1, help="Number of Spaces to push to: NAME-1, NAME-2, ..."),
]
EnvVar = Annotated[
    list[str] | None,
    typer.Option(
        "--env-var",
        "-e",
        metavar="NAME=VALUE",
        help="Public variable of the Space; overrides those of openenv.yaml. Repeatable.",
    ),
]
Secret = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=VALUE]",
        help="Secret of the Space; without a value, taken from this shell's variable. Repeatable.",
    ),
]
AllowSecret = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH[:LINE]", help="Place that looks like a secret and is approved; repeatable."
    ),
]
Message = Annotated[str | None, typer.Option("--message", "-m", help="Commit message.")]
Builder = Annotated[
    EngineName | None,
    typer.Option(
        "--engine", help="Program that builds the image for --registry; by default the first found."
    ),
]
NoTls = Annotated[bool, typer.Option("--push-without-tls", help="Let --registry use plain HTTP.")]
OpenEnv = Annotated[
    Path | None,
    typer.Option(
        "--openenv",
        metavar="PATH|running|locked",
        help="With --registry, the OpenEnv in the image, as for `openenv build`. For a "
        "Space, `locked` pushes an environment whose uv.lock has an OpenEnv of "
        "another series.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the planned upload and changes, and do nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON per Space.")]


# ------------------------------------------------------------------ the command


def push(
    environment: Directory = Path(),
    repo_id: RepoId = None,
    base_image: BaseImage = None,
    interface: Interface = False,
    no_interface: NoInterface = False,
    registry: Registry = None,
    private: Private = False,
    create_pr: CreatePr = False,
    exclude: Exclude = None,
    delete: Delete = None,
    hardware: Hardware = None,
    count: Count = 1,
    env_var: EnvVar = None,
    secret: Secret = None,
    allow_secret: AllowSecret = None,
    message: Message = None,
    engine: Builder = None,
    push_without_tls: NoTls = False,
    openenv: OpenEnv = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
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
        raise CommandError("--interface and --no-interface exclude each other", exit_code=MISUSED)
    if exclude is not None and not exclude.is_file():
        raise CommandError(f"--exclude {exclude} does not exist", exit_code=MISUSED)
    if not environment.is_dir():
        raise CommandError(f"{environment} is not a directory", exit_code=MISUSED)
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
        raise CommandError("--push-without-tls and --engine want --registry", exit_code=MISUSED)
    from openenv.images.running import LOCKED

    if openenv not in (None, LOCKED):
        raise CommandError(
            f"--openenv {openenv} requires --registry: a Space installs what the environment names",
            exit_code=MISUSED,
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
        raise CommandError(
            f"{option} excludes --env-var and --secret, which are of a Space", exit_code=MISUSED
        )
    if count > 1:
        raise CommandError(f"{option} excludes --count {count}")
    for name, value in others.items():
        if value:
            raise CommandError(f"{option} excludes {name}", exit_code=MISUSED)


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
        raise CommandError(
            f"--registry takes a registry without its scheme, not {registry}",
            hint=f"--registry {registry.partition('://')[2]}",
            exit_code=MISUSED,
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
