"""`openenv push`: an environment as a Space on the Hub, or as an image in a registry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import typer

from openenv.cli._console import CommandError, MisuseError, emit, say, warn
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


@dataclass(frozen=True)
class PushOptions:
    """The options of a push."""

    environment: Path = argument(
        Path(), metavar="ENV_DIR", help="Directory with an openenv.yaml; by default this one."
    )
    repo_id: str | None = option(
        None,
        "-r",
        metavar="OWNER/NAME",
        help="Name of the Space; by default the name in openenv.yaml, in your account.",
    )
    base_image: str | None = option(
        None,
        "-b",
        metavar="IMAGE",
        help="Base image of the Dockerfile's final stage; by default the one it names.",
    )
    interface: bool = option(False, help="Show the web page, which is the default for Spaces.")
    no_interface: bool = option(False, help="Hide the web page.")
    registry: str | None = option(
        None,
        metavar="REGISTRY",
        help="Build an image and push it to this registry instead, such as ghcr.io/somebody.",
    )
    private: bool = option(False, help="Create the Space as private.")
    create_pr: bool = option(False, help="Propose the upload as a pull request to the Space.")
    exclude: Path | None = option(
        None, metavar="FILE", help="File of patterns to leave out, in the syntax of .gitignore."
    )
    delete: list[str] | None = option(
        None,
        metavar="GLOB",
        help="Delete matching files from the Space, except pushed ones; repeatable.",
    )
    hardware: str | None = option(
        None,
        "-H",
        metavar="NAME",
        help="Hardware of the Space: cpu-basic (the Hub's default), cpu-upgrade, t4-small, ...",
    )
    count: int = option(1, "-n", min=1, help="Number of Spaces to push to: NAME-1, NAME-2, ...")
    env_var: list[str] | None = option(
        None,
        "-e",
        metavar="NAME=VALUE",
        help="Public variable of the Space; overrides those of openenv.yaml. Repeatable.",
    )
    secret: list[str] | None = option(
        None,
        metavar="NAME[=VALUE]",
        help="Secret of the Space; without a value, taken from this shell's variable. Repeatable.",
    )
    allow_secret: list[str] | None = option(
        None,
        metavar="PATH[:LINE]",
        help="Push this place although it looks like a secret; repeatable.",
    )
    message: str | None = option(
        None, "-m", help="Commit message; by default it names the environment."
    )
    engine: EngineName | None = option(
        None, help="Program that builds the image for --registry; by default the first found."
    )
    push_without_tls: bool = option(False, help="Let --registry use plain HTTP.")
    openenv: Path | None = option(
        None,
        metavar="PATH|running|locked",
        help="With --registry, the OpenEnv in the image, as for `openenv build`. For a Space, "
        "`locked` pushes an environment whose uv.lock has an OpenEnv of another series.",
    )
    dry_run: bool = option(False, help="Show the planned upload and changes, and do nothing.")
    as_json: bool = option(False, "--json", help="Print a line of JSON per Space.")


@takes_options
def push(asked: PushOptions) -> None:
    """Publish an environment as a Space on the Hub, or as an image in a registry.

    Files that seem to hold secrets are refused. An upload is a single commit. Run the command again
    to resume an interrupted upload.

    Examples:
        openenv push my_env --dry-run  # the files that would be uploaded
        openenv push my_env -r acme/my_env --private --secret LLM_KEY
    """
    if asked.interface and asked.no_interface:
        raise MisuseError("--interface and --no-interface exclude each other")
    if asked.exclude is not None and not asked.exclude.is_file():
        raise MisuseError(f"--exclude {asked.exclude} does not exist")
    if not asked.environment.is_dir():
        raise MisuseError(f"{asked.environment} is not a directory")
    check_openenv(asked.openenv)
    if asked.registry is not None:
        settings = "repo_id", "private", "create_pr", "hardware", "delete", "exclude", "message"
        _refuse("--registry", asked, *settings)
        with report_hub_errors():
            _push_image(asked, asked.registry)
        return
    if asked.push_without_tls or asked.engine is not None:
        raise MisuseError("--push-without-tls and --engine require --registry")
    from openenv.images.running import LOCKED

    if asked.openenv not in (None, LOCKED):
        raise MisuseError(
            f"--openenv {asked.openenv} requires --registry: a Space installs what the "
            "environment names"
        )
    if asked.create_pr:
        _refuse("--create-pr", asked, "hardware")
    upload = SpaceUpload(
        asked.environment,
        asked.repo_id,
        asked.count,
        asked.exclude,
        asked.base_image,
        not asked.no_interface,
        asked.private,
        asked.hardware,
        parse_pairs("--env-var", asked.env_var),
        parse_secrets("--secret", asked.secret),
        asked.create_pr,
        asked.delete or (),
        asked.allow_secret or (),
        asked.message,
        asked.openenv,
    )
    push_spaces(upload, dry_run=asked.dry_run, as_json=asked.as_json, wait_s=None)


def _refuse(chosen: str, asked: PushOptions, *others: str) -> None:
    """Refuse options that have no effect beside the chosen one."""
    if asked.env_var or asked.secret:
        raise MisuseError(f"{chosen} excludes --env-var and --secret, which are of a Space")
    if asked.count > 1:
        raise CommandError(f"{chosen} excludes --count {asked.count}")
    for name in others:
        if getattr(asked, name):
            raise MisuseError(f"{chosen} excludes --{name.replace('_', '-')}")


def _push_image(asked: PushOptions, registry: str) -> None:
    from openenv._internal.dockerfile import ParsedDockerfile
    from openenv.hub import SecretsFoundError, check_structure, find_secrets
    from openenv.hub.dockerfiles import replace_base, set_interface
    from openenv.hub.secrets import split_allowed
    from openenv.images import BuildOptions, LockOptions, find_builder, read_plan
    from openenv.images import push as push_image

    if "://" in registry:
        raise MisuseError(
            f"--registry takes a registry without its scheme, not {registry}",
            hint=f"--registry {registry.partition('://')[2]}",
        )
    manifest = check_structure(asked.environment)
    plan = read_plan(asked.environment, default_dockerfile="")
    text = plan.dockerfile.text
    if asked.base_image is not None:
        text = replace_base(text, asked.base_image)
    if asked.interface or asked.no_interface:
        text = set_interface(text, asked.interface)
    plan = replace(plan, dockerfile=ParsedDockerfile(text, plan.dockerfile.source))
    findings, _ = split_allowed(
        find_secrets(plan.contents.root, plan.contents.files), asked.allow_secret or ()
    )
    if findings:
        raise SecretsFoundError(findings)
    warn_of_unscanned(plan.contents.root, plan.contents.files)
    describe_plan(plan)
    if manifest.get("variables"):
        warn(
            f"a registry has no variables: give {', '.join(manifest['variables'])} of openenv.yaml "
            "to the server when it starts"
        )
    tag = f"{_image_name(str(manifest['name']))}:latest"
    if asked.dry_run:
        name = f"{registry.rstrip('/')}/{tag}"
        if asked.as_json:
            emit({"image": name, "files": list(plan.contents.files)})
        else:
            typer.echo(plan.dockerfile.text.rstrip("\n"))
        say(f"{len(plan.contents.files)} files, for {name}; nothing was done")
        return
    if plan.dockerfile.is_locked:
        check_lock(plan, asked.openenv)
    builder = find_builder(None if asked.engine is None else asked.engine.value)
    built = build_with_progress(
        plan, builder, [tag], BuildOptions(), LockOptions(asked.openenv), None
    )
    say(f"pushing it to {registry}")
    name = push_image(built, builder, registry, tls=not asked.push_without_tls)
    if asked.as_json:
        emit({"image": name, "id": f"sha256:{built.id}", "size_bytes": built.size_bytes})
    else:
        typer.echo(name)


def _image_name(name: str) -> str:
    kept = "".join(one if one.isalnum() or one in "._-" else "-" for one in name.lower())
    return kept.strip("._-") or "environment"
