"""`openenv push`: an environment as a Space of the Hub, or as an image of a registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openenv.cli._console import MISUSED, CommandError, emit, say
from openenv.cli._spaces import (
    Upload,
    failing,
    pairs,
    push_spaces,
    secrets_of_options,
    tell_not_scanned,
)
from openenv.cli.commands.build import EngineName, build_shown, check_lock, check_openenv, tell

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
        help="The Space; by default your own, with the name of openenv.yaml.",
        show_default=False,
    ),
]
BaseImage = Annotated[
    str | None,
    typer.Option(
        "--base-image",
        "-b",
        metavar="IMAGE",
        help="What the Dockerfile's final stage starts from.",
        show_default=False,
    ),
]
Interface = Annotated[
    bool, typer.Option("--interface", help="Show the web page: what Spaces do by default.")
]
NoInterface = Annotated[bool, typer.Option("--no-interface", help="Show no web page.")]
Registry = Annotated[
    str | None,
    typer.Option(
        metavar="REGISTRY",
        help="Build the image and push it there instead, such as ghcr.io/somebody.",
        show_default=False,
    ),
]
Private = Annotated[bool, typer.Option("--private", help="Make a Space that others don't see.")]
CreatePr = Annotated[
    bool, typer.Option("--create-pr", help="Propose it: make a pull request to the Space.")
]
Exclude = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A file that names what is left out, in the syntax of .gitignore.",
        show_default=False,
    ),
]
Delete = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GLOB",
        help="Files of the Space that are deleted, unless they are pushed. It may be given "
        "several times.",
        show_default=False,
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        "-H",
        metavar="NAME",
        help="What the Space runs on: cpu-basic, cpu-upgrade, t4-small, ...",
        show_default=False,
    ),
]
Count = Annotated[
    int, typer.Option("--count", "-n", min=1, help="Make so many Spaces: NAME-1, NAME-2, ...")
]
EnvVar = Annotated[
    list[str] | None,
    typer.Option(
        "--env-var",
        "-e",
        metavar="NAME=VALUE",
        help="A variable of the Space, which everybody can read; it goes before those of "
        "openenv.yaml.",
        show_default=False,
    ),
]
Secret = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=VALUE]",
        help="A secret of the Space; without a value, that of this shell's variable.",
        show_default=False,
    ),
]
AllowSecret = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH[:LINE]",
        help="Where something looks like a secret, and is none.",
        show_default=False,
    ),
]
Message = Annotated[
    str | None, typer.Option("--message", "-m", help="Of the commit.", show_default=False)
]
Builder = Annotated[
    EngineName | None,
    typer.Option(
        "--engine",
        help="Of --registry: what builds; by default the first found.",
        show_default=False,
    ),
]
NoTls = Annotated[
    bool, typer.Option("--push-without-tls", help="Of --registry: it speaks plain HTTP.")
]
OpenEnv = Annotated[
    Path | None,
    typer.Option(
        "--openenv",
        metavar="PATH|running|locked",
        help="Of --registry, as of `openenv build`: the OpenEnv in the image. Of a Space: `locked` "
        "pushes an environment whose uv.lock has an OpenEnv of another series.",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be uploaded and changed, and end.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a line for each Space.")]


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
    """Publish an environment: as a Space of the Hugging Face Hub, or to a registry of images.

    Nothing is uploaded where a secret seems to be in it. An upload is one commit.
    One that broke off goes on when it is run again.

    Examples:
        openenv push my_env  # your own Space, named as the environment is
        openenv push my_env -r acme/my_env --private --secret LLM_KEY
        openenv push my_env --registry ghcr.io/acme
    """
    if interface and no_interface:
        raise CommandError("--interface and --no-interface exclude each other", exit_code=MISUSED)
    if exclude is not None and not exclude.is_file():
        raise CommandError(f"--exclude {exclude} is not there", exit_code=MISUSED)
    if not environment.is_dir():
        raise CommandError(f"{environment} is no directory", exit_code=MISUSED)
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
        with failing():
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
            f"--openenv {openenv} wants --registry: a Space installs what the environment names",
            exit_code=MISUSED,
        )
    if create_pr:
        _refuse("--create-pr", bool(env_var or secret), count, {"--hardware": hardware})
    asked = Upload(
        environment,
        repo_id,
        count,
        exclude,
        base_image,
        not no_interface,
        private,
        hardware,
        pairs("--env-var", env_var),
        secrets_of_options("--secret", secret),
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
    tell_not_scanned(plan.contents.root, plan.contents.files)
    tell(plan)
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
    built = build_shown(plan, builder, [tag], BuildOptions(), LockOptions(openenv), None)
    say(f"pushing it to {registry}")
    name = push_image(built, builder, registry, tls=tls)
    if as_json:
        emit({"image": name, "id": f"sha256:{built.id}", "size_bytes": built.size_bytes})
    else:
        typer.echo(name)


def _plan(environment: Path, base_image: str | None, interface: bool | None) -> BuildPlan:
    """What is built: the environment's image, with its Dockerfile changed as it was asked for."""
    from openenv.hub.dockerfiles import replace_base, set_interface
    from openenv.images import read_plan
    from openenv.images.dockerfile import Dockerfile

    plan = read_plan(environment, default_dockerfile="")
    text = plan.dockerfile.text
    if base_image is not None:
        text = replace_base(text, base_image)
    if interface is not None:
        text = set_interface(text, interface)
    return replace(plan, dockerfile=Dockerfile(text, plan.dockerfile.source))


def _image_name(name: str) -> str:
    kept = "".join(one if one.isalnum() or one in "._-" else "-" for one in name.lower())
    return kept.strip("._-") or "environment"
