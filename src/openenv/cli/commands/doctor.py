"""`openenv doctor`: what this machine can do, and how to mend what it cannot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from openenv.cli._console import FAILED, emit, stdout
from openenv.cli._progress import display

if TYPE_CHECKING:
    from openenv.cli._doctor import Finding

__all__ = ["doctor"]

STYLES = {"ok": "green", "missing": "yellow", "broken": "bold red"}


def doctor(
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 also where something is missing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Find out what this machine can do, and how to mend what it cannot.

    It needs no network, and takes some seconds. It exits 0; 1 if something that is installed does
    not work.

    Examples:
        openenv doctor
        openenv doctor --json --strict  # for a pipeline that needs everything
    """
    from openenv.cli import _doctor

    with display() as shown:
        shown.begin("looking", len(_doctor.CHECKS))
        found = _doctor.examine(lambda done: shown.update(done, "checks"))
        counts = Counter(one.status.value for one in found)
        words = ", ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
        shown.finish(words)
    is_well = not counts["broken"] and not (strict and counts["missing"])
    if as_json:
        emit({"ok": is_well, "counts": dict(counts), "findings": [_as_data(one) for one in found]})
    else:
        _show(found)
    if not is_well:
        raise typer.Exit(FAILED)


def _as_data(one: Finding) -> dict[str, str | None]:
    return {**one._asdict(), "status": one.status.value}


def _show(found: list[Finding]) -> None:
    from rich.text import Text

    width = max(len(one.name) for one in found)
    area = ""
    for one in found:
        if one.area != area:
            area = one.area
            stdout().print(Text(area, style="bold"))
        status = one.status.value
        stdout().print(
            Text.assemble(
                "  ", (f"{status:<7}", STYLES[status]), f"  {one.name:<{width}}  ", one.detail
            ),
            soft_wrap=True,
        )
        if one.cure is not None:
            stdout().print(Text.assemble(" " * (width + 13), (one.cure, "cyan")), soft_wrap=True)
