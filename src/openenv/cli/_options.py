"""Declarations of options, one by one or in groups.

A parameter's default declares the option. A dataclass groups options that several commands share,
or that travel together:

    @dataclass(frozen=True)
    class ClusterOptions:
        namespace: str = option("default", help="Namespace, which must exist.")

    @takes_options
    def deploy(cluster: ClusterOptions, dry_run: bool = option(False, help="Do nothing.")) -> None:
        ...

Typer sees the fields as parameters of the command. A group's `PANEL`, if there is one, is the help
panel of all its options.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer


def option(default: Any, *names: str, help: str, **rest: Any) -> Any:
    """Declare an option.

    Args:
        default: The default; `...` for a required option.
        names: Names such as ``-o``. Without a name that begins with ``--``, the option also has
            the parameter's name; a Boolean option that is on by default, one to turn it off.
        help: Help text.
        rest: Further arguments of `typer.Option`.
    """
    return _declare(typer.Option, default, names, help=help, **rest)


def argument(default: Any, *, help: str, **rest: Any) -> Any:
    """Declare a positional argument; the parameters are those of `option`."""
    return _declare(typer.Argument, default, (), help=help, **rest)


def _declare(kind: Any, default: Any, names: tuple[str, ...], **about: Any) -> Any:
    default = MISSING if default is ... else default
    return field(default=default, metadata={"kind": kind, "names": names, "about": about})


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command's parameters be declared by `option` and `argument`, alone or in groups."""
    hints = get_type_hints(command)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        hint = hints[one.name]
        if is_dataclass(hint):
            assert isinstance(hint, type)
            groups[one.name] = hint
            types, panel = get_type_hints(hint), getattr(hint, "PANEL", None)
            parameters += [_parameter(f.name, types[f.name], f, panel) for f in fields(hint)]
        elif isinstance(one.default, Field):
            parameters.append(_parameter(one.name, hint, one.default))
        else:
            parameters.append(one.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        given = {**defaults, **given}
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameter(
    name: str, hint: Any, declared: Field[Any], panel: str | None = None
) -> inspect.Parameter:
    """Return a declared option as a parameter that Typer reads."""
    kind, names = declared.metadata["kind"], declared.metadata["names"]
    about = {"rich_help_panel": panel, **declared.metadata["about"]}
    if kind is typer.Option and not any(one.startswith("--") for one in names):
        long = name.replace("_", "-")
        off = f"/--no-{long}" if hint is bool and declared.default is True else ""
        names = (f"--{long}{off}", *names)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if declared.default is MISSING else declared.default,
        annotation=Annotated[hint, kind(*names, **about)],
    )


def complete_environments(incomplete: str) -> list[str]:
    """Return the installed environments that match a prefix; none on any error."""
    with contextlib.suppress(Exception):  # errors must not disturb the shell
        from openenv.hub.discovery import get_discovery

        return [name for name in get_discovery().discover() if name.startswith(incomplete)]
    return []
