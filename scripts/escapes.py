"""Run every escape attempt in every kind of sandbox on this machine, and write the report.

Runs `openenv.testing.escapes.check_sandbox` for each kind and writes
docs/reference/sandbox-escapes.md. ``--kind`` tries only the named kinds, and writes no report.
``--json`` prints the result of each attempt as JSON. The exit code is 1 if an attempt escaped.

The program needs no network. As root it also tries gVisor, which ``scripts/engines --all``
installs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from openenv.sandbox import Sandbox, SandboxPolicy, kinds_of_this_machine
from openenv.sandbox.landlock import version_of_the_kernel
from openenv.testing.escapes import ESCAPES, Attempt, EscapeReport, check_sandbox

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "docs" / "reference" / "sandbox-escapes.md"

# The beginnings of `Attempt.outcome`, without the parts that differ from run to run.
ENDS = (
    (r"exit code (?P<code>\d+)", "exit {code}"),
    (r"it was timed out", "timed out"),
    (r"the sandbox has ended: it took \d+ MiB of (?P<what>memory|disk)", "ended: {what}"),
    (r"the sandbox has ended: it had \d+ processes", "ended: processes"),
    (r"the sandbox has ended: ", "ended"),
)
NEW_INTERPRETER = ", and the interpreter has ended"

INTRODUCTION = """\
<!-- Written by scripts/escapes.py. -->

# Sandbox escape attempts and results

This page lists the {number} escape attempts of
[`check_sandbox`](../guides/sandboxes.md#add-a-kind-of-sandbox) and their results. Each attempt gets
a fresh sandbox. The script checks from outside whether the code reached a secret file, a writable
file, a port, an abstract socket or a process of the machine. It also measures the memory,
processes, disk, time and output that the code took.

```text
scripts/engines --all           # bubblewrap and gVisor, by apt
python scripts/escapes.py       # makes the attempts, and writes this page
python scripts/escapes.py --kind landlock --json
```
"""

CIRCUMSTANCES = """\
On {kernel}, as {user}, with Python {python}. On another machine an attempt may end in
another way. An attempt that exhausts a resource may end in another way in each run. Whether it is
contained must not differ.
"""

LEGEND = """\
| | |
| --- | --- |
| `exit 0` | The code ran to its end, and nothing outside was seen or touched. |
| `exit 1` | The code ended with an exception, mostly permission denied. |
| `exit 128 + n` | Signal n ended the interpreter. |
| `exit 255` | The code wrote to the interpreter's own files, and was ended. |
| `timed out` | The code was interrupted or killed when its time was over. |
| `+` | The interpreter ended too; the sandbox stayed and served on. |
| `ended: memory` | The sandbox was ended because it took too much of the named resource. |
| `ended` | The code ended the sandbox's first process, and with it the sandbox. |
"""


@dataclass(frozen=True)
class Program:
    """The program behind a kind of sandbox on this machine."""

    kind: str
    guarantee: str
    version: str


# ------------------------------------------------------------------ running the attempts


def tried(kinds: list[str]) -> dict[str, EscapeReport]:
    """Make every attempt in a sandbox of each of these kinds."""
    columns = (
        TextColumn("{task.fields[kind]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    found = {}
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for kind in kinds:
            task = progress.add_task("", kind=f"{kind:<10}", total=len(ESCAPES))

            def tell(attempt: Attempt, kind: str = kind, task: Any = task) -> None:
                progress.update(task, advance=1, description=attempt.escape.name)
                for breach in map(without_secrets, attempt.breaches):
                    progress.console.print(f"{kind}: {attempt.escape.name}: {breach}", markup=False)

            def make(policy: SandboxPolicy, kind: str = kind) -> Sandbox:
                return Sandbox(policy, require="process", kind=kind)

            found[kind] = check_sandbox(make, progress=tell)
            progress.update(task, description="")
    return found


def without_secrets(breach: str) -> str:
    """Return a breach without the text that the code read, which may be a secret."""
    return re.sub(r"(it says: ESCAPED).*", r"\1 ...", breach, flags=re.DOTALL)


def programs() -> list[Program]:
    """Return the kinds of sandbox on this machine, the strongest first."""
    versions = {
        "gvisor": lambda: f"runsc {printed('runsc', '--version').split()[2]}",
        "bubblewrap": lambda: printed("bwrap", "--version"),
        "landlock": lambda: f"Landlock's version {version_of_the_kernel()}",
    }
    return [
        Program(offer.kind, str(offer.guarantee), versions[offer.kind]())
        for offer in kinds_of_this_machine()
        if offer.is_there
    ]


def printed(program: str, *arguments: str) -> str:
    """Run a program and return the first line of its output."""
    path = shutil.which(program)
    assert path is not None
    done = subprocess.run(  # nosec B603  # no shell
        [path, *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.splitlines()[0]


def kernel() -> str:
    """Return the version of the kernel, without a distributor's suffix."""
    found = re.match(r"[\d.]*\d", platform.release())
    return f"{platform.system()} {found[0] if found else platform.release()}"


# ------------------------------------------------------------------ the report


def how_it_ended(outcome: str) -> str:
    """Return an outcome in a word or two that are the same on every machine."""
    for pattern, words in ENDS:
        if found := re.match(pattern, outcome):
            return words.format(**found.groupdict()) + (" +" if NEW_INTERPRETER in outcome else "")
    return outcome


def cell(attempt: Attempt) -> str:
    """Return the table cell of an attempt."""
    words = how_it_ended(attempt.outcome)
    return words if attempt.is_contained else f"**escaped** ({words})"


def page(reports: dict[str, EscapeReport], made_of: list[Program]) -> str:
    """Return the page as Markdown."""
    lines = [
        INTRODUCTION.format(number=len(ESCAPES)),
        *totals(reports, made_of),
        "",
        CIRCUMSTANCES.format(
            kernel=kernel(),
            user="root" if os.geteuid() == 0 else "another user than root",
            python=".".join(platform.python_version_tuple()[:2]),
        ),
        LEGEND.rstrip(),
        *tables(reports),
    ]
    return "\n".join(lines) + "\n"


def totals(reports: dict[str, EscapeReport], made_of: list[Program]) -> Iterator[str]:
    """Yield a row for each kind of sandbox."""
    yield "| Kind | Guarantee | Version | Contained |"
    yield "| --- | --- | --- | --: |"
    for one in made_of:
        report = reports[one.kind]
        contained = len(report.attempts) - len(report.escaped)
        yield (
            f"| {one.kind} | {one.guarantee} | {one.version} "
            f"| {contained} of {len(report.attempts)} |"
        )


def tables(reports: dict[str, EscapeReport]) -> Iterator[str]:
    """Yield a table for each target of the attempts."""
    ended = {
        kind: {attempt.escape.name: cell(attempt) for attempt in report.attempts}
        for kind, report in reports.items()
    }
    for after in dict.fromkeys(escape.kind for escape in ESCAPES):
        yield from ("", f"## {after[0].upper()}{after[1:]}", "")
        yield f"| Attempt | {' | '.join(reports)} |"
        yield f"| --- |{' --- |' * len(reports)}"
        for escape in ESCAPES:
            if escape.kind == after:
                cells = (ended[kind][escape.name] for kind in reports)
                yield f"| {escape.name} | {' | '.join(cells)} |"


def as_json(reports: dict[str, EscapeReport]) -> str:
    """Return the result of each attempt as JSON."""
    rows = [
        {
            "sandbox": kind,
            "escape": attempt.escape.name,
            "after": attempt.escape.kind,
            "outcome": attempt.outcome,
            "breaches": [*map(without_secrets, attempt.breaches)],
            "seconds": round(attempt.seconds, 3),
        }
        for kind, report in reports.items()
        for attempt in report.attempts
    ]
    return json.dumps(rows, indent=1)


def main() -> int:
    """Make the attempts, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made_of = programs()
    names = [one.kind for one in made_of]
    parser.add_argument(
        "--kind", nargs="+", choices=names, help="try only these kinds, and write no report"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result of each attempt as JSON"
    )
    arguments = parser.parse_args()
    reports = tried(arguments.kind or names)
    if arguments.json:
        print(as_json(reports))
    if not arguments.kind:
        REPORT.write_text(page(reports, made_of), encoding="utf-8")
    escaped = {kind: len(report.escaped) for kind, report in reports.items()}
    told = ", ".join(f"{number} out of {kind}" for kind, number in escaped.items())
    print(f"escapes: {told}, of {len(ESCAPES)}", file=sys.stderr)
    return 1 if any(escaped.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
