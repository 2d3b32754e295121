"""`openenv fork`: a copy of another user's Space."""

from __future__ import annotations

import typer

from openenv.cli._console import MisuseError, emit, say
from openenv.cli._options import argument, option, takes_options
from openenv.cli._spaces import parse_pairs, parse_secrets, report_hub_errors


@takes_options
def fork(
    source: str = argument(..., metavar="OWNER/SPACE", help="Space to copy."),
    repo_id: str | None = option(
        None,
        "-r",
        metavar="[OWNER/]NAME",
        help="Name of the copy; by default the same name in your account.",
    ),
    private: bool = option(False, help="Create the copy as private."),
    env_var: list[str] | None = option(
        None,
        "--env-var",
        "--set-env",
        "-e",
        metavar="NAME=VALUE",
        help="Public variable of the copy; repeatable.",
    ),
    secret: list[str] | None = option(
        None,
        "--secret",
        "--set-secret",
        "-s",
        metavar="NAME[=VALUE]",
        help="Secret of the copy; without a value, taken from this shell's variable. Repeatable.",
    ),
    hardware: str = option("cpu-basic", "-H", metavar="NAME", help="Hardware of the copy."),
    as_json: bool = option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Copy a Space, including the history, to your account.

    Examples:
        openenv fork openenv/echo_env --repo-id my_echo --private
        openenv fork openenv/echo_env -r acme/echo --secret LLM_KEY --hardware cpu-upgrade
    """
    from openenv.hub import Hub, SecretsFoundError, SpaceSettings, full_space_name
    from openenv.hub.names import parse_space_reference
    from openenv.hub.secrets import SecretFinding, find_secrets_in_text

    try:
        source, revision = parse_space_reference(source)
    except ValueError as error:
        raise MisuseError(str(error), hint="openenv fork OWNER/SPACE") from None
    if revision is not None:
        raise MisuseError(f"a fork has the whole history, not {revision} alone")
    variables = parse_pairs("--env-var", env_var)
    secrets = parse_secrets("--secret", secret)
    with report_hub_errors():
        for name, value in variables.items():
            if found := find_secrets_in_text(f"{name}={value}", "variables.env"):
                raise SecretsFoundError([SecretFinding(f"--env-var {name}", 0, found[0].kind)])
        hub = Hub(on_wait=lambda s: say(f"the Hub is busy; next attempt in {s:g} s"))
        user = hub.user()
        try:
            target = full_space_name(repo_id, source.partition("/")[2], lambda: user)
        except ValueError as error:
            raise MisuseError(str(error), hint="write OWNER/NAME, or NAME") from None
        hub.duplicate(source, target, SpaceSettings(private, hardware, variables, secrets))
        if as_json:
            emit({"source": source, "space": target, "url": hub.page(target), "hardware": hardware})
            return
        typer.echo(hub.page(target))
        say(f"it is built now; in Python: AutoEnv.from_env({target!r})", style="green")
