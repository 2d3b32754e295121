"""Groups of options: a dataclass declares options once, and commands take the dataclass.

    @dataclass(frozen=True)
    class ClusterOptions:
        namespace: Annotated[str, typer.Option(help="Namespace, which must exist.")] = "default"

    @takes_groups
    def deploy(cluster: ClusterOptions, ...) -> None: ...

Typer sees the fields as parameters of the command. A group's `PANEL`, if there is one, is the help
panel of all its options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

__all__ = ["takes_groups"]


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command's parameters be groups of options, which Typer cannot read by itself."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        hint = hints[one.name]
        if isinstance(hint, type) and is_dataclass(hint):
            groups[one.name] = hint
            parameters += _parameters_of(hint)
        else:
            parameters.append(one.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameters_of(group: type[Any]) -> list[inspect.Parameter]:
    """Return the fields of a group as parameters of a command."""
    hints = get_type_hints(group, include_extras=True)
    panel = getattr(group, "PANEL", None)
    found = []
    for field in fields(group):
        hint = hints[field.name]
        if panel is not None and get_origin(hint) is Annotated:
            for info in get_args(hint)[1:]:
                info.rich_help_panel = panel
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        found.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
            )
        )
    return found
