"""Shared parts of the commands about Spaces: option parsing, pushing, and error messages."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.quoting import printable
from openenv._internal.redaction import redact, register_secret
from openenv.cli._console import MISUSED, CommandError, MisuseError, emit, say, warn
from openenv.cli._progress import display
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.hub import Hub, HubCommit, SpaceSettings, SpaceStage, StagedSpace


@dataclass(frozen=True)
class SpaceUpload:
    """The options of a push."""

    environment: Path
    space: str | None = None  # OWNER/NAME, or NAME under the user's account
    count: int = 1  # several Spaces are named NAME-1, NAME-2, ...
    exclude: Path | None = None  # file with patterns
    base_image: str | None = None
    interface: bool = True
    private: bool = False
    hardware: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)  # besides the manifest's
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    create_pr: bool = False
    delete: Sequence[str] = ()  # patterns
    let_pass: Sequence[str] = ()  # approved places that look like secrets
    message: str | None = None
    openenv: Path | None = None  # `locked` to push despite an OpenEnv of another series


def parse_pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Parse options of the form NAME=VALUE."""
    found = {}
    for one in given or ():
        name, sign, value = one.partition("=")
        if not (name and sign):
            raise MisuseError(
                f"{option} {redact(one)} is not of the form NAME=VALUE",
                hint=f"write {option} {name or 'NAME'}=VALUE",
            )
        found[name] = value
    return found


def parse_secrets(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Parse secrets given as NAME=VALUE, or as the NAME of an environment variable.

    The values are redacted in all later output.
    """
    found = {}
    for one in given or ():
        name, sign, value = one.partition("=")
        if not name:
            raise MisuseError(
                f"{option} has no name before its =", hint=f"write {option} NAME=VALUE"
            )
        if not sign and name not in os.environ:
            raise MisuseError(
                f"there is no variable {name} to take a secret from",
                hint=f"export {name}=..., or write {option} {name}=VALUE",
            )
        found[name] = value if sign else os.environ[name]
        register_secret(found[name])
    return found


@contextlib.contextmanager
def report_hub_errors() -> Iterator[None]:
    """Convert errors of the directory or the Hub to `CommandError`."""
    from openenv.hub.errors import SecretsFoundError, StructureError
    from openenv.hub.secrets import ALLOWED

    try:
        yield
    except StructureError as error:
        raise CommandError(
            str(error), hint=error.hint, exit_code=MISUSED if error.missing else 1
        ) from error
    except SecretsFoundError as error:
        place = error.findings[0]
        raise CommandError(
            f"{error}\nnothing was uploaded",
            hint="take it out, and give it to the server by --secret NAME; if it is none, write "
            f"`{ALLOWED}` on its line, or pass --allow-secret {place.path}"
            + (f":{place.line}" if place.line else ""),
        ) from error
    except OpenEnvError as error:
        raise CommandError(str(error), hint=getattr(error, "hint", None)) from error


def push_spaces(asked: SpaceUpload, *, dry_run: bool, as_json: bool, wait_s: float | None) -> None:
    """Push an environment to the Hub, and print the address, once it runs if `wait_s` is given."""
    from openenv.hub import (
        SpaceSettings,
        check_secrets,
        full_space_name,
        merge_variables,
        stage_space,
    )

    _check_openenv(asked)
    with (
        report_hub_errors(),
        stage_space(
            asked.environment,
            exclude=asked.exclude,
            base_image=asked.base_image,
            interface=asked.interface,
        ) as copy,
    ):
        for place in check_secrets(copy, asked.variables, asked.let_pass):
            warn(f"--allow-secret {place}: no secret was found there")
        settings = SpaceSettings(
            asked.private,
            asked.hardware,
            merge_variables(copy.manifest, asked.variables),
            asked.secrets,
        )
        _announce(copy, settings)
        if dry_run:
            _show(copy, asked, settings, as_json)
            return
        hub, user = _log_in()
        try:
            name = full_space_name(asked.space, copy.name, lambda: user)
        except ValueError as error:
            hint = "write OWNER/NAME, or NAME, of letters, digits and . _ -"
            raise MisuseError(str(error), hint=hint) from None
        spaces = [name] if asked.count == 1 else [f"{name}-{i + 1}" for i in range(asked.count)]
        for space in spaces:
            commit = _push(hub, copy, asked, space, settings)
            stage = None if wait_s is None else wait_for_space(hub, space, commit.sha, wait_s)
            _report(hub, copy, space, commit, stage, as_json)


def _check_openenv(asked: SpaceUpload) -> None:
    """Compare the OpenEnv of ``uv.lock`` with the running version before a push.

    A Space installs the environment's dependencies, so only a change of the environment helps.
    """
    from openenv.images import BuildError
    from openenv.images.running import LOCKED, check_locked

    if asked.openenv == LOCKED:
        return
    try:
        difference = check_locked(asked.environment)
    except BuildError as error:
        raise CommandError(
            str(error),
            hint="`openenv init NAME` shows how an environment names the one that runs; "
            "`--openenv locked` pushes this one as it is",
        ) from error
    if difference is not None:
        warn(difference)


def _log_in() -> tuple[Hub, str]:
    """Return the Hub client and the user's name; ask for a token on a terminal.

    This runs first, so that a wrong token fails before anything is created.
    """
    from openenv._internal.consent import is_at_terminal
    from openenv.hub import AccessError, Hub
    from openenv.hub.client import TOKENS

    def tell_wait(seconds: float) -> None:
        say(f"the Hub is busy; next attempt in {seconds:g} s")

    hub = Hub(on_wait=tell_wait)
    try:
        return hub, hub.user()
    except AccessError as error:
        if not is_at_terminal():
            raise
        say(f"{error}\nCreate a token with write access at {TOKENS}; it is not shown or stored.")
        token = getpass.getpass("Token: ").strip()
        if not token:
            raise
    register_secret(token)
    hub = Hub(token=token, on_wait=tell_wait)
    return hub, hub.user()


def _push(
    hub: Hub, copy: StagedSpace, asked: SpaceUpload, space: str, settings: SpaceSettings
) -> HubCommit:
    from openenv.hub import publish

    kilobytes = max(1, copy.size_bytes // 1000)
    say(f"pushing {len(copy.files)} files, {kilobytes:,} kB, to {hub.page(space)}")
    with display() as shown:
        shown.begin("upload", kilobytes)
        try:
            commit = publish(
                hub,
                copy,
                space,
                settings,
                message=asked.message or f"{copy.name}, pushed with OpenEnv",
                create_pr=asked.create_pr,
                delete=asked.delete,
                on_progress=lambda done, what: shown.update(done // 1000, what),
            )
        except KeyboardInterrupt:
            warn("interrupted: run it again, and what has arrived is not sent again")
            raise
        shown.finish(f"commit {commit.sha[:7]}")
    if not commit.is_new:
        say("the Space is unchanged, so there is no new commit")
    return commit


def wait_for_space(hub: Hub, space: str, sha: str, timeout_s: float) -> SpaceStage:
    """Wait until a Space runs a commit, and show the progress."""
    from openenv.hub import wait_until_running

    with display() as shown:
        seen = ""

        def on_stage(stage: SpaceStage) -> None:
            nonlocal seen
            name = stage.name if stage.sha in ("", sha) else f"{stage.name} (the one before)"
            if name != seen:
                if seen:
                    shown.finish("done")
                shown.begin(name.lower().replace("_", " "))
                seen = name
            shown.update(0, f"on {stage.hardware}" if stage.hardware else "")

        stage = wait_until_running(hub, space, sha, timeout_s=timeout_s, on_stage=on_stage)
        shown.finish(f"on {stage.hardware}")
    return stage


def _announce(copy: StagedSpace, settings: SpaceSettings) -> None:
    from openenv.images.context import list_paths
    from openenv.settings import looks_secret

    for change in copy.changes:
        say(change)
    if copy.left_out:
        say(f"left out: {list_paths(copy.left_out)}")
    warn_of_unscanned(copy.folder, copy.files)
    for name in settings.variables:
        if looks_secret(name) and settings.variables[name]:
            warn(
                f"everybody can read the variable {name}; --secret {name} is for what they may not"
            )
    twice = sorted(set(settings.variables) & set(settings.secrets))
    if twice:
        raise MisuseError(
            f"{', '.join(twice)} would be a variable and a secret of the Space",
            hint="name it once: with --secret, take it out of openenv.yaml's variables",
        )


def warn_of_unscanned(root: Path, files: Sequence[str]) -> None:
    """Warn of files that were not scanned for secrets."""
    from openenv.hub.secrets import find_unscanned
    from openenv.images.context import list_paths

    if large := find_unscanned(root, files):
        warn(f"not scanned for secrets: {list_paths(large)}")


def _show(copy: StagedSpace, asked: SpaceUpload, settings: SpaceSettings, as_json: bool) -> None:
    name = asked.space or copy.name
    target = name if "/" in name else f"<you>/{name}"
    sizes = {path: (copy.folder / path).stat().st_size for path in copy.files}
    if as_json:
        emit(
            {
                "space": target,
                "files": [{"path": path, "size_bytes": size} for path, size in sizes.items()],
                "changes": list(copy.changes),
                "left_out": list(copy.left_out),
                "variables": dict(settings.variables),
                "secrets": sorted(settings.secrets),
                "hardware": settings.hardware,
                "private": settings.private,
                "count": asked.count,
                "create_pr": asked.create_pr,
                "delete": list(asked.delete),
            }
        )
        return
    for path, size in sizes.items():
        sys.stdout.write(printable(f"{size:>9}  {path}\n"))
    for variable, value in settings.variables.items():
        say(f"variable {variable}={value}")
    for secret in settings.secrets:
        say(f"secret {secret}")
    for pattern in asked.delete:
        say(f"deleted there: what fits {pattern}")
    many = "" if asked.count == 1 else f"-1 to -{asked.count}"
    say(
        f"{len(sizes)} files, {copy.size_bytes / 1e3:,.1f} kB, for {target}{many}; nothing was done"
    )


def _report(
    hub: Hub,
    copy: StagedSpace,
    space: str,
    commit: HubCommit,
    stage: SpaceStage | None,
    as_json: bool,
) -> None:
    from openenv.client.launch import hf_space_subdomain

    page = commit.pull_request or hub.page(space)
    server = f"https://{hf_space_subdomain(space)}.hf.space"
    told: dict[str, Any] = {
        "space": space,
        "url": hub.page(space),
        "server": server,
        "commit": commit.sha,
        "pull_request": commit.pull_request,
        "is_new": commit.is_new,
        "files": len(copy.files),
        "size_bytes": copy.size_bytes,
        "stage": None if stage is None else stage.name,
        "hardware": None if stage is None else stage.hardware or None,
    }
    if as_json:
        emit(told)
        return
    sys.stdout.write(printable(f"{page}\n"))
    sys.stdout.flush()
    if commit.pull_request is None and commit.is_new:
        say(f"its server: {server}; in Python: AutoEnv.from_env({space!r})", style="green")
