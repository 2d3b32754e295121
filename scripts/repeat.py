"""Run ``make test`` repeatedly: ``make test-repeat RUNS=20 BUSY=6``.

A test that fails once in twenty runs is a defect of the test or of the tested code. The last BUSY
runs have a busy loop on each processor, since a loaded machine reveals faults that an idle one
hides. Each run prints a line; the failures are printed at the end. The exit code is 1 if a run
failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "outputs" / "repeat"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
LAST = re.compile(r"^=+ (.*) =+$", re.MULTILINE)


def main() -> int:
    """Run the tests, and print a summary."""
    parser = argparse.ArgumentParser(description="Run `make test` again and again.")
    parser.add_argument("--runs", type=int, default=20, help="How often. Default: 20.")
    parser.add_argument("--busy", type=int, default=6, help="Runs under load. Default: 6.")
    parser.add_argument("--target", default="test", help="Target of the Makefile. Default: test.")
    arguments = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    failures: Counter[str] = Counter()
    failed_runs = 0
    for number in range(1, arguments.runs + 1):
        is_busy = number > arguments.runs - arguments.busy
        began = time.monotonic()
        status, output = run(arguments.target, is_busy=is_busy)
        (LOGS / f"{number:02}.log").write_text(output, encoding="utf-8")
        found = FAILED.findall(output)
        failures.update(found)
        failed_runs += status != 0
        said = LAST.findall(output)[-1:] or ["no summary"]
        load = "busy" if is_busy else "idle"
        seconds = time.monotonic() - began
        print(f"run {number:2} {load}  {seconds:6.0f} s  exit {status}  {said[0]}", flush=True)
    print(f"{arguments.runs - failed_runs} of {arguments.runs} runs passed; logs in {LOGS}")
    for test, count in failures.most_common():
        print(f"  failed {count} times: {test}")
    return 1 if failed_runs else 0


def run(target: str, *, is_busy: bool) -> tuple[int, str]:
    """Run the target once; return its exit status and output."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])  # nosec B603  # no shell
        for _ in range((os.cpu_count() or 1) if is_busy else 0)
    ]
    try:
        done = subprocess.run(  # nosec B603 B607  # no shell
            ["make", target],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
