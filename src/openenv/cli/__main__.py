"""The commands of `openenv`, put together. Nothing that is slow to import is imported here."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

import openenv
from openenv.cli._console import INTERRUPTED, MISUSED, CommandError, report
from openenv.cli.commands.build import build
from openenv.cli.commands.capture import capture
from openenv.cli.commands.collect import collect
from openenv.cli.commands.containers import prune, ps
from openenv.cli.commands.demo import demo
from openenv.cli.commands.deploy import deploy
from openenv.cli.commands.eval import evaluate_command
from openenv.cli.commands.gateway import gateway
from openenv.cli.commands.init import init
from openenv.cli.commands.leaderboard import leaderboard
from openenv.cli.commands.mcp import mcp
from openenv.cli.commands.replay import replay
from openenv.cli.commands.rollout import rollout
from openenv.cli.commands.score import score
from openenv.cli.commands.serve import serve
from openenv.cli.commands.sft import sft
from openenv.cli.commands.top import top
from openenv.cli.commands.validate import validate

__all__ = ["app", "main"]

app = typer.Typer(
    name="openenv",
    help="Make, serve and try environments that AI agents learn in.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"openenv {openenv.__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        with contextlib.redirect_stdout(sys.stderr):  # typer prints the help while it makes it
            typer.echo(context.get_help())
        raise typer.Exit(MISUSED)


app.command()(init)
app.command()(build)
app.command()(validate)
app.command()(leaderboard)
app.command()(deploy)
app.command()(serve)
app.command()(mcp)
app.command()(rollout)
app.command()(capture)
app.command()(replay)
app.command("eval")(evaluate_command)
app.command()(score)
app.command()(collect)
app.command()(sft)
app.command()(demo)
app.command()(top)
app.command()(ps)
app.command()(prune)
app.command()(gateway)


def main() -> None:
    """Run the command line. It exits 0; 1 if a command failed; 2 if it was misused; or 130."""
    try:
        app(prog_name="openenv")
    except CommandError as error:
        report(error)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
