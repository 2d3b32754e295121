"""The skill for coding assistants: `skill.md` completed by the list of commands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openenv

NAME = "openenv-cli"
HERE = Path(__file__).with_name("skill.md")
MARK = "<!-- commands -->\n"

# Each assistant's directory of skills, in a project and in a home directory.
ASSISTANTS = {
    "claude": (".claude/skills", ".claude/skills"),
    "codex": (".codex/skills", ".codex/skills"),
    "cursor": (".cursor/skills", ".cursor/skills"),
    "opencode": (".opencode/skills", ".config/opencode/skills"),
}


def skill_text(context: Any) -> str:
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


def write_skill(directory: Path, text: str) -> None:
    """Write a skill into a new directory."""
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(text, encoding="utf-8")


def link(place: Path, central: Path) -> None:
    """Make `place` a relative link to the central copy, so that both can be moved together."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(central, place.parent), target_is_directory=True)


def remove(place: Path) -> None:
    """Remove a skill or a link, if present."""
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.exists():
        shutil.rmtree(place)
