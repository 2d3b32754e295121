"""Validate our environments in containers, and write a badge for each and a table.

    scripts/badges.py [NAME ...] [-- OPTION ...]

Options after ``--`` are passed to `openenv validate`, for example the options that this machine
needs to build images (`--base`, `--network`, `--ca-file`). Each badge is `envs/NAME/badge.svg`,
which the environment's README shows; the table is docs/reference/validated.md. The exit code is 1
if an environment does not pass.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "envs"
TABLE = ROOT / "docs" / "reference" / "validated.md"
OPENENV = Path(sys.executable).with_name("openenv")
HEAD = """\
# Validation of our environments

`openenv validate` built each environment twice, started it in a container and validated it (see the
[guide](../guides/validation.md)). `make badges` repeats this and writes this page. A score is the
share of a property's checks that were shown, of 100.

"""
ROW = re.compile(r"^\| \[(\w+)\]", re.MULTILINE)


def main() -> None:
    """Validate the named environments, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    told, options = _split(sys.argv[1:])
    names = parser.parse_args(told).names or sorted(
        path.parent.name for path in ENVIRONMENTS.glob("*/openenv.yaml")
    )
    rows = _known()
    failed = []
    for number, name in enumerate(names, 1):
        began = time.monotonic()
        print(f"{number} of {len(names)}: {name} ...", end=" ", file=sys.stderr, flush=True)
        found = _validated(name, options)
        print(f"{found['verdict']}, {time.monotonic() - began:.0f} s", file=sys.stderr)
        rows[name] = _row(name, found)
        _write(rows)
        if found["verdict"] != "pass":
            failed.append(name)
    if failed:
        sys.exit(f"these do not pass: {', '.join(failed)}; see the reports in {_reports()}")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _reports() -> Path:
    return ROOT / "outputs" / "validated"


def _validated(name: str, options: list[str]) -> dict[str, Any]:
    """Return the report of `openenv validate` on an environment, with the scores."""
    root, report = ENVIRONMENTS / name, _reports() / f"{name}.json"
    command = [str(OPENENV), "validate", str(root), "--provider", "docker"]
    command += ["--output", str(report), "--badge", str(root / "badge.svg"), *options]
    done = subprocess.run(  # nosec B603  # no shell
        command, capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode > 1:
        sys.exit(f"{name} could not be validated:\n{done.stderr}")
    kept = json.loads((report.with_suffix(".artifacts") / "run.json").read_text())
    return {**json.loads(report.read_text()), "scores": kept["scores"]}


def _row(name: str, found: dict[str, Any]) -> str:
    scores = found["scores"]
    counts = [result["status"] for result in found["results"]]
    properties = scores["properties"].values()
    cells = [f"{one['score']:.0f}" if one["score"] is not None else "-" for one in properties]
    total = f"{scores['total']:.0f}"
    checks = f"{counts.count('pass')} of {len(counts)}"
    shown = [f"[{name}](../../envs/{name}/README.md)", found["verdict"], checks]
    return f"| {' | '.join([*shown, total, *cells])} |"


def _known() -> dict[str, str]:
    """Return the rows of the existing page, by name."""
    text = TABLE.read_text() if TABLE.exists() else ""
    return {m[1]: line for line in text.splitlines() if (m := ROW.match(line))}


def _write(rows: dict[str, str]) -> None:
    from openenv.validation.checks import Property

    columns = ["environment", "verdict", "checks passed", "score", *(one.value for one in Property)]
    lines = [f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |"]
    lines += [rows[name] for name in sorted(rows)]
    TABLE.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
