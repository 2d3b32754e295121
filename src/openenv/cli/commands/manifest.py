"""`openenv manifest`: what may stand in an openenv.yaml, and bringing an old one up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from openenv.cli._console import FAILED, CommandError, emit, say

__all__ = ["app", "migrate", "schema"]

app = typer.Typer(
    help="Look up what may stand in an openenv.yaml, and bring an old one up to date."
)

Directory = Annotated[
    Path, typer.Argument(metavar="[ENV_DIR]", help="A directory with an openenv.yaml.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Change nothing; exit with 1 if something would be changed.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was changed as JSON.")]


@app.command()
def schema() -> None:
    """Print the JSON Schema of openenv.yaml, by which editors complete and check it.

    Examples:
        openenv manifest schema
    """
    from openenv.manifest import manifest_schema

    sys.stdout.write(json.dumps(manifest_schema(), indent=2) + "\n")


@app.command()
def migrate(directory: Directory = Path(), check: Check = False, as_json: AsJson = False) -> None:
    """Write an openenv.yaml anew in its newest form; comments and order stay.

    Examples:
        openenv manifest migrate my_env
        openenv manifest migrate my_env --check  # in CI: it is in its newest form
    """
    from openenv.manifest import MANIFEST, ManifestError, migrate_manifest
    from openenv.manifest.reading import read_text

    path = directory / MANIFEST
    if not path.is_file():
        raise CommandError(f"{directory} has no {MANIFEST}", hint="name an environment's directory")
    try:
        text, changes = migrate_manifest(read_text(path))
    except ManifestError as error:
        raise CommandError(str(error), hint="`openenv validate` shows the line") from error
    if changes and not check:
        _replace(path, text)
    for words in changes:
        say(f"{path}: {words}")
    if as_json:
        emit({"path": str(path), "changes": changes, "written": bool(changes) and not check})
    elif not changes:
        say(f"{path} is in its newest form")
    if changes and check:
        raise typer.Exit(FAILED)


def _replace(path: Path, text: str) -> None:
    """Write a file at once or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.chmod(path.stat().st_mode)
    beside.replace(path)
