"""`openenv fork`: somebody's Space, as a Space of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from openenv.cli._console import MISUSED, CommandError, emit, say
from openenv.cli._spaces import failing, pairs, secrets_of_options

__all__ = ["fork"]


def fork(
    source: Annotated[str, typer.Argument(help="The Space.", metavar="OWNER/SPACE")],
    repo_id: Annotated[
        str | None,
        typer.Option(
            "--repo-id",
            "-r",
            metavar="[OWNER/]NAME",
            help="What yours is called; by default as the other, under your name.",
            show_default=False,
        ),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Others don't see yours.")] = False,
    env_var: Annotated[
        list[str] | None,
        typer.Option(
            "--env-var",
            "--set-env",
            "-e",
            metavar="NAME=VALUE",
            help="A variable of yours, which everybody can read.",
            show_default=False,
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            "--set-secret",
            "-s",
            metavar="NAME[=VALUE]",
            help="A secret of yours; without a value, that of this shell's variable.",
            show_default=False,
        ),
    ] = None,
    hardware: Annotated[
        str, typer.Option("--hardware", "-H", metavar="NAME", help="What yours runs on.")
    ] = "cpu-basic",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Copy a Space, with its history, to one of your own.

    Examples:
        openenv fork openenv/echo_env --repo-id my_echo --private
    """
    from openenv.hub import Hub, SecretsFoundError, full_space_name
    from openenv.hub.names import parse_space_reference
    from openenv.hub.secrets import SecretFinding, find_secrets_in_text

    try:
        source, revision = parse_space_reference(source)
    except ValueError as error:
        raise CommandError(str(error), hint="openenv fork OWNER/SPACE", exit_code=MISUSED) from None
    if revision is not None:
        raise CommandError(f"a fork has the whole history, not {revision} alone", exit_code=MISUSED)
    variables = pairs("--env-var", env_var)
    secrets = secrets_of_options("--secret", secret)
    with failing():
        for name, value in variables.items():
            if found := find_secrets_in_text(f"{name}={value}", "variables.env"):
                raise SecretsFoundError([SecretFinding(f"--env-var {name}", 0, found[0].kind)])
        hub = Hub(on_wait=lambda s: say(f"the Hub wants to be asked again in {s:g} s"))
        user = hub.user()
        try:
            target = full_space_name(repo_id, source.partition("/")[2], lambda: user)
        except ValueError as error:
            raise CommandError(
                str(error), hint="write OWNER/NAME, or NAME", exit_code=MISUSED
            ) from None
        hub.duplicate(
            source,
            target,
            private=private,
            hardware=hardware,
            variables=variables,
            secrets=secrets,
        )
        if as_json:
            emit({"source": source, "space": target, "url": hub.page(target), "hardware": hardware})
            return
        typer.echo(hub.page(target))
        say(f"it is built now; in Python: AutoEnv.from_env({target!r})", style="green")
