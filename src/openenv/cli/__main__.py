"""The table of `openenv` commands. Slow modules are imported by the commands only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

import openenv
from openenv.cli._console import be_quiet, set_color, show_tracebacks
from openenv.cli._failures import handle_termination
from openenv.cli._groups import GLOBAL_PANEL, CommandEntry, LazyGroup
from openenv.cli._options import option, takes_options

# The commands in the order of `openenv --help`, each with its panel and target.
COMMANDS = {
    "init": CommandEntry("Make", "init:init"),
    "import": CommandEntry("Make", "importing:import_environment"),
    "build": CommandEntry("Make", "build:build"),
    "validate": CommandEntry("Make", "validate:validate"),
    "manifest": CommandEntry("Make", "manifest:app"),
    "leaderboard": CommandEntry("Make", "leaderboard:leaderboard"),
    "skills": CommandEntry("Make", "skills:skills"),
    "discover": CommandEntry("Find", "catalog:discover"),
    "info": CommandEntry("Find", "info:info"),
    "serve": CommandEntry("Run", "serve:serve"),
    "mcp": CommandEntry("Run", "mcp:mcp"),
    "replay": CommandEntry("Run", "replay:replay"),
    "demo": CommandEntry("Run", "demo:demo"),
    "rollout": CommandEntry("Train and evaluate", "rollout:rollout"),
    "eval": CommandEntry("Train and evaluate", "eval:evaluate_command"),
    "score": CommandEntry("Train and evaluate", "score:score"),
    "collect": CommandEntry("Train and evaluate", "collect:collect"),
    "capture": CommandEntry("Train and evaluate", "capture:capture"),
    "sft": CommandEntry("Train and evaluate", "sft:sft"),
    "catalog": CommandEntry("Publish", "catalog:app"),
    "push": CommandEntry("Publish", "push:push"),
    "fork": CommandEntry("Publish", "fork:fork"),
    "deploy": CommandEntry("Publish", "deploy:deploy"),
    "gateway": CommandEntry("Operate", "gateway:gateway"),
    "top": CommandEntry("Operate", "top:top"),
    "bench": CommandEntry("Operate", "bench:bench"),
    "ps": CommandEntry("Operate", "containers:ps"),
    "prune": CommandEntry("Operate", "containers:prune"),
    "doctor": CommandEntry("Operate", "doctor:doctor"),
}


class OpenEnv(LazyGroup):
    """The group of all commands."""

    table = COMMANDS


app = typer.Typer(
    name="openenv",
    cls=OpenEnv,
    help="Build, serve and test environments for AI agents.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"openenv {openenv.__version__}")
        raise typer.Exit()


def _global_option(
    default: bool | None, *names: str, act: Callable[[bool], None], help: str
) -> Any:
    """Declare an option of all commands; `act` is called if the option is given."""
    return option(
        default,
        *names,
        help=help,
        callback=lambda given: None if given is default else act(given),
        is_eager=True,
        expose_value=False,
        rich_help_panel=GLOBAL_PANEL,
        show_default=default is not None,
    )


@app.callback()
@takes_options
def _root(
    version: bool = option(
        False, callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
    quiet: bool = _global_option(
        False, "-q", act=lambda _: be_quiet(), help="Print data and errors only."
    ),
    color: bool | None = _global_option(
        None,
        "--color/--no-color",
        act=set_color,
        help="Color the output. The default follows the terminal, FORCE_COLOR and NO_COLOR.",
    ),
    debug: bool = _global_option(
        False,
        act=lambda _: show_tracebacks(),
        help="Show tracebacks of errors, as does OPENENV_DEBUG=1.",
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; exit codes are documented in `openenv.cli._failures`."""
    handle_termination()
    app(prog_name="openenv")


if __name__ == "__main__":
    main()
