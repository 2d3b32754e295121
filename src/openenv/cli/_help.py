"""The help of a command: its commands, its options, its examples, as wide as the terminal.

Typer's own table gives every part of an option a column of its own, and breaks names and addresses
in two where the columns do not fit. Here no word is broken: a name that is too long for its column
has its help below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from openenv._internal.terminal import console

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["show_help"]

WIDEST = 100
NAMES = 26  # columns, at most, before the help of an option begins beside it
INDENT = 2

Rows = Sequence[tuple[str, str]]


def show_help(command: Any, ctx: Any, examples: Rows = ()) -> None:
    """Print the help of a command, or of a group: commands come before options.

    Args:
        command: The command.
        ctx: Its context, of click.
        examples: Lines of a shell, each with what it is good for. They can be copied: one that is
            too long goes on in the next line, as a shell reads it.
    """
    from rich.text import Text

    out = console(highlight=False)
    width = min(out.width, WIDEST)
    lines = [Text(""), *_wrapped(command.get_usage(ctx), width, INDENT // 2, "bold"), Text("")]
    for paragraph in (command.help or "").strip().split("\n\n"):
        lines += [*_wrapped(" ".join(paragraph.split()), width, INDENT // 2), Text("")]
    for title, rows in [*_commands(command, ctx), *_parameters(command, ctx)]:
        lines += [Text(f" {title}:", style="bold"), *_laid_out(rows, width), Text("")]
    if examples:
        lines += [Text(" Examples:", style="bold"), *_examples(examples, width), Text("")]
    out.print(*lines, sep="\n", end="", soft_wrap=True)


def _examples(examples: Rows, width: int) -> Iterator[Text]:
    from rich.text import Text

    indent = " " * (INDENT + 1)
    column = max((len(line) for line, why in examples if why), default=0)
    widest = max(len(why) for _, why in examples)
    is_beside = len(indent) + column + len("  # ") + widest <= width
    for line, why in examples:
        if why and not is_beside:
            yield Text.assemble(indent, (f"# {why}", "dim"))
        first, *rest = _continued(line, width - len(indent))
        beside = (f"  # {why}", "dim") if why and is_beside else ""
        yield Text.assemble(indent, (f"{first:<{column}}" if beside else first, "bold"), beside)
        yield from (Text.assemble(indent, (f"  {more}", "bold")) for more in rest)


def _continued(line: str, width: int) -> Iterator[str]:
    """The lines that a line of a shell is broken into, at spaces that are in no quotes, and not
    between an option and its value.
    """
    import re

    words = re.findall(r"""(?:-\S+ (?!-))?(?:'[^']*'|"[^"]*"|\S)+""", line)
    said = ""
    for word in words:
        if said and len(said) + len(word) + len("   \\") > width:
            yield f"{said} \\"
            said = word
        else:
            said = f"{said} {word}".strip()
    yield said


def _commands(command: Any, ctx: Any) -> Iterator[tuple[str, Rows]]:
    """The commands of a group, by their panels."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        one = command.get_command(ctx, name)
        if one is not None and not one.hidden:
            title = getattr(one, "rich_help_panel", None) or "Commands"
            first = (one.help or "").strip().partition("\n\n")[0]
            panels.setdefault(title, []).append((name, " ".join(first.split())))
    yield from panels.items()


def _parameters(command: Any, ctx: Any) -> Iterator[tuple[str, Rows]]:
    """The arguments and options, by their panels; those of every command come last."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.get_params(ctx):
        record = None if getattr(param, "hidden", False) else param.get_help_record(ctx)
        if record is not None:
            kind = "Arguments" if param.param_type_name == "argument" else "Options"
            title = getattr(param, "rich_help_panel", None) or kind
            panels.setdefault(title, []).append(record)
    yield from ((title, rows) for title, rows in panels.items() if rows)


def _laid_out(rows: Rows, width: int) -> Iterator[Text]:
    from rich.text import Text

    column = min(NAMES, max(len(name) for name, _ in rows))
    start = INDENT + column + 2
    for name, words in rows:
        helped = list(_wrapped(words, width, start))
        head = Text.assemble(" " * INDENT, (name, "cyan"))
        if len(name) > column:
            yield head
        elif helped:
            head.append(" " * (start - len(head)))
            yield head.append_text(helped.pop(0)[start:])
        else:
            yield head
        yield from helped


def _wrapped(words: str, width: int, indent: int, style: str = "") -> Iterator[Text]:
    """The lines of a text, none of whose words is broken."""
    import textwrap

    from rich.text import Text

    wrapper = textwrap.TextWrapper(
        max(width - indent, 1), break_long_words=False, break_on_hyphens=False
    )
    for line in wrapper.wrap(words):
        yield Text.assemble(" " * indent, (line, style))
