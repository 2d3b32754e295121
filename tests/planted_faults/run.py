"""Plant faults into a copy of the source, and check that ``make test`` notices each.

    python tests/planted_faults/run.py               every fault, against the tests it names
    python tests/planted_faults/run.py --only token  faults whose name holds this word
    python tests/planted_faults/run.py --whole       against everything that make test selects

The table goes to ``tests/planted_faults/RESULTS.md``, and the exit code is 1 if a fault was missed.
The tests that a fault names must pass without it, or the run says nothing; that is checked first.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted_faults.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("RESULTS.md")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "site", "dist")
FIRST_FAILURE = re.compile(r"^FAILED (\S+)", re.MULTILINE)
LIMIT_S = 900.0
HANGS_AFTER_S = 20


def main() -> int:
    """Plant the faults and write the table."""
    parser = argparse.ArgumentParser(description="Plant faults and see which test notices.")
    parser.add_argument("--only", default="", help="Faults whose name holds this text.")
    parser.add_argument("--whole", action="store_true", help="Run all of `make test` for each.")
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if arguments.only in fault.name]
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory) / "tree"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
        named = sorted({test for fault in faults for test in fault.caught_by})
        status, output = run_tests(copy, named)
        if status != 0:
            print(output)
            print("error: without a fault, these tests do not pass", file=sys.stderr)
            return 2
        rows = [try_fault(copy, fault, whole=arguments.whole) for fault in faults]
    missed = [fault.name for fault, test, _ in rows if test is None]
    if not arguments.only:
        RESULTS.write_text(table(rows), encoding="utf-8")
    print(f"{len(rows) - len(missed)} of {len(rows)} faults were noticed")
    return 1 if missed else 0


def try_fault(copy: Path, fault: Fault, *, whole: bool) -> tuple[Fault, str | None, float]:
    """Return the first test that failed with a fault in place, or None, and the seconds it took."""
    file = copy / "src" / "openenv" / fault.file
    text = file.read_text(encoding="utf-8")
    count = text.count(fault.before)
    if count != 1:
        raise SystemExit(f"error: {fault.file} holds {count} times what {fault.name!r} replaces")
    began = time.monotonic()
    file.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
    try:
        # What hangs with a fault has noticed it; it need not hang for a minute.
        options = ("-x", f"--timeout={HANGS_AFTER_S}")
        status, output = run_tests(copy, [] if whole else fault.caught_by, *options)
    finally:
        file.write_text(text, encoding="utf-8")
    seconds = time.monotonic() - began
    failed = FIRST_FAILURE.search(output)
    test = None if status == 0 else failed[1] if failed else "the tests did not run to their end"
    print(
        f"{'missed ' if test is None else 'noticed'} {seconds:5.1f} s  {fault.name}  [{test}]",
        flush=True,
    )
    return fault, test, seconds


def run_tests(copy: Path, tests: Iterable[str], *options: str) -> tuple[int, str]:
    """Run tests of the copy, of those that ``make test`` selects; return the status and output."""
    path = os.pathsep.join([str(copy / "src"), str(copy / "envs")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    command += ["-n", "2", "--dist", "loadscope", "-m", selection(), *tests]
    done = subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    return done.returncode, done.stdout + done.stderr


def selection() -> str:
    """Return the marks that ``make test`` selects by."""
    printed = subprocess.run(
        ["make", "--silent", "print-selection"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return printed.stdout.strip()


def table(rows: Sequence[tuple[Fault, str | None, float]]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Planted faults",
        "",
        "Written by `make planted-faults`. Each row is a small edit of `src/openenv`, and a test",
        "of `make test` that fails with it.",
        "",
        "| with this fault | in | this test fails |",
        "| --- | --- | --- |",
    ]
    for fault, test, _ in rows:
        shown = "**none**" if test is None else f"`{test.partition('[')[0]}`"
        lines.append(f"| {fault.name} | `{fault.file}` | {shown} |")
    noticed = sum(test is not None for _, test, _ in rows)
    return "\n".join([*lines, "", f"{noticed} of {len(rows)} faults are noticed.", ""])


if __name__ == "__main__":
    sys.exit(main())
