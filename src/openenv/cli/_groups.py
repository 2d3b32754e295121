"""Commands with examples, and groups that import a command's module on use.

A command's docstring is the help text. A final section lists examples, one per line; a comment
after two spaces explains the example:

    Examples:
        openenv serve                    # the environment in this directory
        openenv serve echo --port 9000
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from openenv.cli import _failures
from openenv.cli._console import MISUSED, unknown_name

# The panel of the options that every command has.
GLOBAL_PANEL = "Global options"
COMMANDS = "openenv.cli.commands"


class Example(NamedTuple):
    """A shell command line and a comment, which may be empty."""

    line: str
    why: str


class CommandEntry(NamedTuple):
    """An entry in the table of a `LazyGroup`."""

    panel: str
    target: str
    """MODULE:NAME below `openenv.cli.commands`: a function, or a typer.Typer with commands."""


def _split_examples(doc: str | None) -> tuple[str, list[Example]]:
    """Split a docstring into help text and examples."""
    text, _, section = (doc or "").partition("\nExamples:\n")
    parted = (re.split(r"\s{2,}# ", line.strip(), maxsplit=1) for line in section.splitlines())
    return text.rstrip(), [Example(one[0], "".join(one[1:])) for one in parted if one[0]]


class Command(TyperCommand):
    """A command that appends the docstring's examples to the help text."""

    def __init__(self, *args: Any, help: str | None = None, **rest: Any) -> None:
        text, self.examples = _split_examples(help)
        super().__init__(*args, help=text, **rest)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from openenv.cli._help import show_help

        show_help(self, ctx, self.examples)


def example_lines(examples: Sequence[Example]) -> list[str]:
    """Format examples with aligned comments."""
    width = max((len(line) for line, why in examples if why), default=0)
    return [f"{line:<{width}}  # {why}" if why else line for line, why in examples]


class CommandGroup(TyperGroup):
    """A group that prints help without a command, and suggests corrections for unknown commands.

    The exit codes are those of `openenv.cli._failures`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            with contextlib.redirect_stdout(sys.stderr):  # get_help() prints while formatting
                typer.echo(ctx.get_help())
            raise typer.Exit(MISUSED)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from openenv.cli._help import show_help

        show_help(self, ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and name[:1] != "-" and not ctx.resilient_parsing:
            raise unknown_name(f"there is no command {name!r} of {ctx.command_path}", name, known)
        return super().resolve_command(ctx, args)

    def main(self, args: Any = None, *, standalone_mode: bool = True, **rest: Any) -> Any:  # type: ignore[override]
        def run() -> Any:
            return super(CommandGroup, self).main(args, standalone_mode=False, **rest)

        return sys.exit(_failures.run_and_report(run)) if standalone_mode else run()


class LazyGroup(CommandGroup):
    """A group of commands from a table; each is imported on use.

    Every command also has the group's options of the panel `GLOBAL_PANEL`, so that these may
    precede or follow the command.
    """

    table: ClassVar[Mapping[str, CommandEntry]] = {}

    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list({**self.table, **self.commands})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._is_listing and cmd_name in self.table:
            listed = self.table[cmd_name]
            found = _import_command(listed)
            doc = found.info.help if isinstance(found, typer.Typer) else found.__doc__
            return Command(cmd_name, help=doc, rich_help_panel=listed.panel)
        if cmd_name not in self.commands and cmd_name in self.table:
            command = _build_command(cmd_name, self.table[cmd_name])
            for one in _walk_commands(command):
                one.params.extend(self._global_options(one))
            self.commands[cmd_name] = command
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        """Omit the options of commands while only the summaries are shown."""
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False

    def _global_options(self, command: Any) -> Iterator[Any]:
        own = {name for param in command.params for name in param.opts}
        for param in self.params:
            if getattr(param, "rich_help_panel", None) == GLOBAL_PANEL and own.isdisjoint(
                param.opts
            ):
                yield param


def _import_command(listed: CommandEntry) -> Any:
    module, _, attribute = listed.target.partition(":")
    return getattr(importlib.import_module(f"{COMMANDS}.{module}"), attribute)


def _build_command(name: str, listed: CommandEntry) -> Any:
    found = _import_command(listed)
    if isinstance(found, typer.Typer):
        for info in found.registered_commands:
            info.cls = Command if info.cls is TyperCommand else info.cls
        made = typer.Typer(add_completion=False)
        made.add_typer(found, name=name, cls=CommandGroup, rich_help_panel=listed.panel)
        group: Any = typer.main.get_command(made)
        return group.commands[name]
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    made.command(
        name,
        cls=Command,
        rich_help_panel=listed.panel,
        context_settings={"help_option_names": ["-h", "--help"]},
    )(found)
    return typer.main.get_command(made)


def _walk_commands(command: Any) -> Iterator[Any]:
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from _walk_commands(one)
