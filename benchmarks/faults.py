"""Play random fault schedules with both packages, and write the results into the docs.

`python benchmarks/faults.py [--count 1000] [--seed 1]`; it needs `.peer` (`benchmarks/peer.py`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.chaos import run_schedules  # noqa: E402
from support.commands import environ  # noqa: E402

PAGE = ROOT / "docs" / "concepts" / "guarantees.md"
BEGIN, END = "<!-- faults -->", "<!-- end of faults -->"
HEAD = "| client and server | schedules | right | lost, with an error | wrong, without an error |"


def measured(count: int, seed: int) -> dict[str, dict[str, Any]]:
    """Return the results of the schedules, by client and server."""
    path = environ()["PYTHONPATH"]
    ours, peer = sys.executable, str(ROOT / ".peer" / "bin" / "python")
    return {
        "ours, version 1": run_schedules(ours, count, seed, PYTHONPATH=path),
        "ours, version 0": run_schedules(ours, count, seed, PYTHONPATH=path, OPENENV_PROTOCOL="0"),
        "the public package, 0.10.0": run_schedules(peer, count, seed),
    }


def table(reports: dict[str, dict[str, Any]], seed: int) -> str:
    """Return the results as a table, with the command that reproduces it."""
    rows = [
        f"| {who} | {r['schedules']:,} | {r['right']:,} | {r['loud']:,} | {r['silent']:,} |"
        for who, r in reports.items()
    ]
    count = next(iter(reports.values()))["schedules"]
    command = f"python benchmarks/faults.py --count {count} --seed {seed}"
    lines = [HEAD, "| --- " * 5 + "|", *rows, "", f"`{command}` gives this table."]
    return "\n".join(lines)


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    text = table(measured(arguments.count, arguments.seed), arguments.seed)
    print(text)
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
