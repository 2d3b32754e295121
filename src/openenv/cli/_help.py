"""Help texts of commands, laid out for the terminal's width.

Typer's own table has a column for each part of an option, and breaks long names and addresses. This
layout breaks no word: a name that exceeds the column has the help text on the next lines. This
module loads rich, so it is imported when help is shown.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from openenv._internal.terminal import console

WIDEST = 100
NAMES = 26  # maximum width of the column of names
INDENT = 2

Rows = Sequence[tuple[str, str]]


def show_help(command: Any, ctx: Any, examples: Rows = ()) -> None:
    """Print the help of a command or group; commands precede options, examples end it.

    Long examples are continued with a backslash, so that they can be copied.
    """
    out = console(highlight=False)
    width = min(out.width, WIDEST)
    lines = [Text(""), *_wrap_lines(command.get_usage(ctx), width, INDENT // 2, "bold"), Text("")]
    for paragraph in (command.help or "").strip().split("\n\n"):
        lines += [*_wrap_lines(" ".join(paragraph.split()), width, INDENT // 2), Text("")]
    for title, rows in [*_command_rows(command, ctx), *_parameter_rows(command, ctx)]:
        lines += [Text(f" {title}:", style="bold"), *_format_rows(rows, width), Text("")]
    if examples:
        lines += [Text(" Examples:", style="bold"), *_examples(examples, width), Text("")]
    out.print(*lines, sep="\n", end="", soft_wrap=True)


def _examples(examples: Rows, width: int) -> Iterator[Text]:
    indent = " " * (INDENT + 1)
    column = max((len(line) for line, why in examples if why), default=0)
    widest = max(len(why) for _, why in examples)
    is_beside = len(indent) + column + len("  # ") + widest <= width
    for line, why in examples:
        if why and not is_beside:
            yield Text.assemble(indent, (f"# {why}", "dim"))
        first, *rest = _break_shell_line(line, width - len(indent))
        beside = (f"  # {why}", "dim") if why and is_beside else ""
        yield Text.assemble(indent, (f"{first:<{column}}" if beside else first, "bold"), beside)
        yield from (Text.assemble(indent, (f"  {more}", "bold")) for more in rest)


def _break_shell_line(line: str, width: int) -> Iterator[str]:
    """Break a shell line at spaces outside quotes, and never between an option and the value."""
    words = re.findall(r"""(?:-\S+ (?!-))?(?:'[^']*'|"[^"]*"|\S)+""", line)
    said = ""
    for word in words:
        if said and len(said) + len(word) + len("   \\") > width:
            yield f"{said} \\"
            said = word
        else:
            said = f"{said} {word}".strip()
    yield said


def _command_rows(command: Any, ctx: Any) -> Iterator[tuple[str, Rows]]:
    """Return the commands of a group by panel."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        one = command.get_command(ctx, name)
        if one is not None and not one.hidden:
            title = getattr(one, "rich_help_panel", None) or "Commands"
            first = (one.help or "").strip().partition("\n\n")[0]
            panels.setdefault(title, []).append((name, " ".join(first.split())))
    yield from panels.items()


def _parameter_rows(command: Any, ctx: Any) -> Iterator[tuple[str, Rows]]:
    """Return arguments and options by panel, global options last."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.get_params(ctx):
        record = None if getattr(param, "hidden", False) else param.get_help_record(ctx)
        if record is not None:
            kind = "Arguments" if param.param_type_name == "argument" else "Options"
            title = getattr(param, "rich_help_panel", None) or kind
            panels.setdefault(title, []).append(record)
    yield from ((title, rows) for title, rows in panels.items() if rows)


def _format_rows(rows: Rows, width: int) -> Iterator[Text]:
    column = min(NAMES, max(len(name) for name, _ in rows))
    start = INDENT + column + 2
    for name, words in rows:
        helped = list(_wrap_lines(words, width, start))
        head = Text.assemble(" " * INDENT, (name, "cyan"))
        if len(name) > column:
            yield head
        elif helped:
            head.append(" " * (start - len(head)))
            yield head.append_text(helped.pop(0)[start:])
        else:
            yield head
        yield from helped


def _wrap_lines(words: str, width: int, indent: int, style: str = "") -> Iterator[Text]:
    """Wrap a text without breaking words."""
    wrapper = textwrap.TextWrapper(
        max(width - indent, 1), break_long_words=False, break_on_hyphens=False
    )
    for line in wrapper.wrap(words):
        yield Text.assemble(" " * indent, (line, style))
