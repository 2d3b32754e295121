"""`openenv doctor`: the capabilities of this machine, with fixes for missing ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from openenv.cli._console import FAILED, emit, stdout
from openenv.cli._options import option, takes_options
from openenv.cli._progress import display

if TYPE_CHECKING:
    from openenv.cli._doctor import DoctorFinding

STYLES = {"ok": "green", "missing": "yellow", "broken": "bold red"}


@takes_options
def doctor(
    strict: bool = option(False, help="Exit with 1 also if something is missing."),
    as_json: bool = option(False, "--json", help="Print the findings as JSON."),
) -> None:
    """Check the capabilities of this machine, and suggest fixes.

    The checks need no network, and take some seconds. The exit code is 0, or 1 if an installed
    program does not work.

    Examples:
        openenv doctor
        openenv doctor --json --strict  # for a pipeline that needs everything
    """
    from openenv.cli import _doctor

    with display() as shown:
        shown.begin("looking", len(_doctor.CHECKS))
        found = _doctor.run_checks(lambda done: shown.update(done, "checks"))
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


def _as_data(one: DoctorFinding) -> dict[str, str | None]:
    return {**one._asdict(), "status": one.status.value}


def _show(found: list[DoctorFinding]) -> None:
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
