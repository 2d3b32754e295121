"""`openenv skills`: instructions on OpenEnv for coding assistants."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import openenv
from openenv.cli._console import CommandError, emit, say
from openenv.cli._options import option, takes_options

NAME = "openenv-cli"
HERE = Path(__file__).parents[1] / "skill.md"
MARK = "<!-- commands -->\n"

# Each assistant's directory of skills, in a project and in a home directory.
ASSISTANTS = {
    "claude": (".claude/skills", ".claude/skills"),
    "codex": (".codex/skills", ".codex/skills"),
    "cursor": (".cursor/skills", ".cursor/skills"),
    "opencode": (".opencode/skills", ".config/opencode/skills"),
}


def _skill_text(context: Any) -> str:
    """Return the skill with the commands of the context's program."""
    root = context.find_root()
    shown = "\n".join(_lines(root.command, root, root.info_name))
    end = (
        f"\nWritten by openenv {openenv.__version__}; `openenv skills add --force` brings it up to "
        "date.\n"
    )
    return HERE.read_text(encoding="utf-8").replace(MARK, f"{shown}\n{end}")


def _lines(group: Any, context: Any, words: str) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        if hasattr(command, "list_commands"):
            yield from _lines(command, context, f"{words} {name}")
            continue
        what = " ".join(command.help.partition("\n\n")[0].split())
        lines = [line for line, _ in command.examples if line.startswith(f"{words} {name} ")]
        yield f"- `{words} {name}`: {what}" + "".join(f" `{line}`" for line in lines[-1:])


skills = typer.Typer(help="Teach coding assistants to write environments.")


@skills.command()
def preview(context: typer.Context) -> None:
    """Print the skill that `openenv skills add` installs.

    Examples:
        openenv skills preview
        openenv skills preview > SKILL.md
    """
    sys.stdout.write(_skill_text(context))


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
    for place in (central, *links):
        if not force and (place.exists() or place.is_symlink()):
            raise CommandError(f"{place} already exists", hint="--force replaces it")
    text = _skill_text(context)
    try:
        for place in (central, *links):
            if place.is_symlink() or place.is_file():
                place.unlink()
            elif place.exists():
                shutil.rmtree(place)
        central.mkdir(parents=True)
        (central / "SKILL.md").write_text(text, encoding="utf-8")
        for place in links:  # relative, so that both can be moved together
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(os.path.relpath(central, place.parent), target_is_directory=True)
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be written: {error.strerror}") from error
    say(f"the skill {NAME} is in {central}", style="green")
    for place in links:
        say(f"linked: {place}")
    if as_json:
        emit({"name": NAME, "path": str(central), "links": [str(place) for place in links]})
