"""Command lines on our pages, also those that no test runs: commands and options exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.test_docs import LINKED
from typer import Context
from typer.main import get_command

from openenv.cli.__main__ import app

ROOT = Path(__file__).resolve().parents[2]
# In a block or in a code span; a line that ends in a backslash goes on in the next.
COMMAND = re.compile(
    r"(?:^|(?<=`)|(?<=\$ )|(?<=run ))openenv ([a-z](?:[^`\n\\]|\\\n|\\.)*)", re.MULTILINE
)
OPTION = re.compile(r"(?<![\w'\"=/-])(--?[a-zA-Z][\w-]*)")
PAGES = [page for page in LINKED if page.name != "CHANGELOG.md" and page.parent.name != "rfcs"]
# Shown since they do not exist: a typing error, and a command of the public package.
NOT_OURS = {"serv", "harbor"}


def command_lines(text: str) -> Iterator[str]:
    for found in COMMAND.finditer(text):
        line = found[1].replace("\\\n", " ")
        # What follows is another program's, a comment, or an option of a program that is served.
        yield re.split(r"\s#|[|;&>]|\s--\s", line)[0]


def unknown_options(line: str) -> list[str]:
    """Name what is no command or option of ours; a word in capitals stands for any."""
    command: Any = get_command(app)
    context = Context(command)
    words = line.split()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in command.list_commands(context):
            return [name] if name.islower() else []
        command = command.get_command(context, name)
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    quoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", " ".join(words))
    asked = OPTION.findall(quoted)
    return [name for name in asked if name not in known | {"-h", "--help"} and len(name) > 2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    unknown = {name for line in command_lines(text) for name in unknown_options(line)}
    assert not unknown - NOT_OURS


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("openenv serve echo --port 8000", []),
        ("```\nopenenv serve echo --most-envs 64\n```", ["--most-envs"]),
        ("`openenv sevre echo`", ["sevre"]),
        ("$ openenv catalog build . \\\n    --no-such", ["--no-such"]),
        ("openenv serve --mcp 'uvx a --local'", []),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, wrong: list[str]) -> None:
    assert [name for line in command_lines(text) for name in unknown_options(line)] == wrong
