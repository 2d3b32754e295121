"""`openenv manifest`: the schema of openenv.yaml, and migration to the newest version."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from openenv._internal.replacing import replacing
from openenv.cli._console import FAILED, CommandError, emit, say
from openenv.cli._options import argument, option, takes_options

app = typer.Typer(help="Print the schema of openenv.yaml, or migrate a file to the newest version.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of openenv.yaml, for completion and checks in editors.

    Examples:
        openenv manifest schema
        openenv manifest schema > openenv.schema.json  # for an editor
    """
    from openenv.manifest import manifest_schema

    sys.stdout.write(json.dumps(manifest_schema(), indent=2) + "\n")


@app.command()
@takes_options
def migrate(
    directory: Path = argument(
        Path(), metavar="[ENV_DIR]", help="Directory with an openenv.yaml; by default this one."
    ),
    check: bool = option(False, help="Change nothing, and exit with 1 if the file is outdated."),
    as_json: bool = option(False, "--json", help="Print the changes as JSON."),
) -> None:
    """Rewrite an openenv.yaml in the newest version, with comments and order kept.

    Examples:
        openenv manifest migrate my_env
        openenv manifest migrate my_env --check  # in CI: fail if it is outdated
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
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
            partial.chmod(path.stat().st_mode)
    for words in changes:
        say(f"{path}: {words}")
    if as_json:
        emit({"path": str(path), "changes": changes, "written": bool(changes) and not check})
    elif not changes:
        say(f"{path} is in its newest form")
    if changes and check:
        raise typer.Exit(FAILED)
