"""`openenv ps` and `openenv prune`: containers started by this package."""

from __future__ import annotations

from typing import Any

import typer

from openenv.cli._console import CommandError, emit, say, stdout
from openenv.cli._options import option, takes_options
from openenv.errors import OpenEnvError

ENGINE: str | None = option(
    None, help="Address of the container engine; by default the first found."
)


@takes_options
def ps(
    engine: str | None = ENGINE,
    as_json: bool = option(False, "--json", help="Print a line of JSON per container."),
) -> None:
    """List the containers of environments on this machine, and the processes that hold them.

    Examples:
        openenv ps
        openenv ps --json
    """
    from openenv.providers.docker import listed

    rows = [vars(one) for one in listed(_client(engine))]
    if as_json:
        for row in rows:
            emit(row)
        return
    if not rows:
        say("no containers of environments")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("id", "image", "status", "held by")
    for row in rows:
        holder = Text(f"process {row['pid']}") if row["is_held"] else Text("nobody", style="red")
        table.add_row(row["id"][:12], row["image"], row["status"], holder)
    stdout().print(table)


@takes_options
def prune(
    engine: str | None = ENGINE,
    as_json: bool = option(False, "--json", help="Print the removed containers as JSON."),
) -> None:
    """Remove containers and swarm services that no running process holds.

    Examples:
        openenv prune
        openenv prune --json
    """
    from openenv.providers import docker, swarm

    client = _client(engine)
    removed = [*docker.prune(client), *swarm.prune(client)]
    if as_json:
        emit({"removed": removed})
    else:
        for container in removed:
            typer.echo(container)
    say(f"{len(removed)} removed")


def _client(engine: str | None) -> Any:
    from openenv.providers.engines import find_engine

    try:
        return find_engine(engine)
    except OpenEnvError as error:
        raise CommandError(str(error)) from None
