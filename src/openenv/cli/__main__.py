"""The commands of `openenv`, put together. Nothing that is slow to import is imported here."""

from __future__ import annotations

from typing import Annotated

import typer

import openenv
from openenv.cli._console import be_quiet, set_color, show_tracebacks
from openenv.cli._failures import end_as_by_ctrl_c
from openenv.cli._groups import GLOBAL_PANEL, LazyGroup, Listed

__all__ = ["app", "main"]


# The commands, in the order of `openenv --help`, and where each is.
COMMANDS = {
    "init": Listed("Make", "init:init"),
    "import": Listed("Make", "importing:import_environment"),
    "build": Listed("Make", "build:build"),
    "validate": Listed("Make", "validate:validate"),
    "manifest": Listed("Make", "manifest:app"),
    "leaderboard": Listed("Make", "leaderboard:leaderboard"),
    "skills": Listed("Make", "skills:skills"),
    "discover": Listed("Find", "catalog:discover"),
    "info": Listed("Find", "info:info"),
    "serve": Listed("Run", "serve:serve"),
    "mcp": Listed("Run", "mcp:mcp"),
    "replay": Listed("Run", "replay:replay"),
    "demo": Listed("Run", "demo:demo"),
    "rollout": Listed("Train and evaluate", "rollout:rollout"),
    "eval": Listed("Train and evaluate", "eval:evaluate_command"),
    "score": Listed("Train and evaluate", "score:score"),
    "collect": Listed("Train and evaluate", "collect:collect"),
    "capture": Listed("Train and evaluate", "capture:capture"),
    "sft": Listed("Train and evaluate", "sft:sft"),
    "catalog": Listed("Publish", "catalog:app"),
    "push": Listed("Publish", "push:push"),
    "fork": Listed("Publish", "fork:fork"),
    "deploy": Listed("Publish", "deploy:deploy"),
    "gateway": Listed("Operate", "gateway:gateway"),
    "top": Listed("Operate", "top:top"),
    "ps": Listed("Operate", "containers:ps"),
    "prune": Listed("Operate", "containers:prune"),
    "doctor": Listed("Operate", "doctor:doctor"),
}


class OpenEnv(LazyGroup):
    """The group of all commands."""

    table = COMMANDS


app = typer.Typer(
    name="openenv",
    cls=OpenEnv,
    help="Make, serve and try environments that AI agents learn in.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"openenv {openenv.__version__}")
        raise typer.Exit()


def _debug(wanted: bool) -> None:
    if wanted:
        show_tracebacks()


def _quiet(wanted: bool) -> None:
    if wanted:
        be_quiet()


def _color(wanted: bool | None) -> None:
    if wanted is not None:
        set_color(wanted)


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            callback=_quiet,
            is_eager=True,
            expose_value=False,
            rich_help_panel=GLOBAL_PANEL,
            help="Print data and errors only, no words.",
        ),
    ] = False,
    color: Annotated[
        bool | None,
        typer.Option(
            "--color/--no-color",
            callback=_color,
            is_eager=True,
            expose_value=False,
            rich_help_panel=GLOBAL_PANEL,
            help="Colour what is printed, or do not. By default on a terminal, and as FORCE_COLOR "
            "and NO_COLOR say.",
            show_default=False,
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            callback=_debug,
            is_eager=True,
            expose_value=False,
            rich_help_panel=GLOBAL_PANEL,
            help="Show the traceback of an error; so does OPENENV_DEBUG=1.",
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. It exits 0; 1 if a command failed; 2 if it was misused; 130; 143."""
    end_as_by_ctrl_c()
    app(prog_name="openenv")


if __name__ == "__main__":
    main()
