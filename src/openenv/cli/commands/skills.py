"""`openenv skills`: instructions on OpenEnv for coding assistants."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from openenv.cli._console import CommandError, emit, say
from openenv.cli._options import option, takes_options

skills = typer.Typer(help="Teach coding assistants to write environments.")


@skills.command()
def preview(context: typer.Context) -> None:
    """Print the skill that `openenv skills add` installs.

    Examples:
        openenv skills preview
        openenv skills preview > SKILL.md
    """
    from openenv.cli._skill import skill_text

    sys.stdout.write(skill_text(context))


@skills.command()
@takes_options
def add(
    context: typer.Context,
    claude: bool = option(False, help="Link the skill for Claude."),
    codex: bool = option(False, help="Link the skill for Codex."),
    cursor: bool = option(False, help="Link the skill for Cursor."),
    opencode: bool = option(False, help="Link the skill for OpenCode."),
    everywhere: bool = option(
        False,
        "--global",
        "-g",
        help="Install into the home directory, for all projects, instead of this project.",
    ),
    dest: Path | None = option(
        None, metavar="DIR", help="Install only into this directory of skills."
    ),
    force: bool = option(False, help="Replace an existing skill."),
    as_json: bool = option(False, "--json", help="Print the written paths as JSON."),
) -> None:
    """Install the skill for coding assistants.

    The skill is written to .agents/skills; each selected assistant gets a link.

    Examples:
        openenv skills add --claude --cursor
        openenv skills add --global --codex --force
    """
    from openenv.cli._skill import ASSISTANTS, NAME, link, remove, skill_text, write_skill

    asked = {"claude": claude, "codex": codex, "cursor": cursor, "opencode": opencode}
    chosen = [name for name, is_asked in asked.items() if is_asked]
    if dest is not None and (chosen or everywhere):
        named = [f"--{name}" for name in [*chosen, *(["global"] if everywhere else [])]]
        raise CommandError(
            f"--dest and {named[0]} exclude each other",
            hint="--dest DIR names the one directory that is written to",
        )
    base = Path.home() if everywhere else Path.cwd()
    central = (dest or base / ".agents" / "skills") / NAME
    links = [base / ASSISTANTS[name][everywhere] / NAME for name in chosen]
    if not force:
        _check_free([central, *links])
    try:
        for place in (central, *links):
            remove(place)
        write_skill(central, skill_text(context))
        for place in links:
            link(place, central)
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be written: {error.strerror}") from error
    say(f"the skill {NAME} is in {central}", style="green")
    for place in links:
        say(f"linked: {place}")
    if as_json:
        emit({"name": NAME, "path": str(central), "links": [str(place) for place in links]})


def _check_free(places: list[Path]) -> None:
    for place in places:
        if place.exists() or place.is_symlink():
            raise CommandError(f"{place} already exists", hint="--force replaces it")
