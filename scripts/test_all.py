"""Run every test that this machine can run: ``make test-all``.

Each set of tests is a target of the Makefile. A set is skipped if this machine lacks its engine or
cannot reach the package index. The summary at the end lists the results of the sets that ran, and
the reasons for the skipped ones. The exit code is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# The last line of pytest: "=== 10 passed, 2 skipped in 3.21s (0:00:03) ===".
COUNTS = re.compile(r"^=* ?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s\b", re.MULTILINE)
TRAINERS_GIB = 40  # PyTorch and a trainer in each of their virtual environments


class TestSet(NamedTuple):
    """A target of the Makefile.

    Attributes:
        target: The name of the target.
        obstacle: Returns the reason why the tests cannot run here, or None.
    """

    target: str
    obstacle: Callable[[], str | None]


def no_obstacle() -> str | None:
    """Return None, since `make test` installs everything that these tests need."""
    return None


def lacks_program(name: str, target: str) -> Callable[[], str | None]:
    """Return a function that returns why a program is missing, or None."""
    there = [name, str(ROOT / ".containers" / "kubernetes" / "bin" / name)]

    def obstacle() -> str | None:
        if any(map(shutil.which, there)):
            return None
        return f"{name} is not installed; `make {target}` installs it"

    return obstacle


def lacks_ray() -> str | None:
    """Return the reason if Ray is not installed, or None."""
    return None if (ROOT / ".ray").exists() else "Ray is not installed; `make test-ray` installs it"


def lacks_index() -> str | None:
    """Return the reason if the package index does not answer, or None."""
    command = [sys.executable, "-m", "pip", "index", "versions", "pip"]
    done = subprocess.run(command, capture_output=True, check=False)  # nosec B603  # no shell
    return None if done.returncode == 0 else "the index of packages cannot be reached"


def lacks_room_for_trainers() -> str | None:
    """Return the reason why the trainers cannot be installed, or None."""
    free_gib = shutil.disk_usage(ROOT).free / 2**30
    if free_gib < TRAINERS_GIB:
        return f"they need {TRAINERS_GIB} GiB of disk, and {free_gib:.0f} are free"
    return lacks_index()


SETS = [
    TestSet("test", no_obstacle),
    TestSet("test-extended", no_obstacle),
    TestSet("test-compat", lacks_index),
    TestSet("test-packages", lacks_index),
    TestSet("test-packaging", lacks_index),
    TestSet("test-containers", lacks_program("podman", "test-containers")),
    TestSet("test-images", lacks_program("podman", "test-images")),
    TestSet("test-kubernetes", lacks_program("kube-apiserver", "test-kubernetes")),
    TestSet("test-swarm", lacks_program("dockerd", "test-swarm")),
    TestSet("test-ray", lacks_ray),
    TestSet("test-trainers", lacks_room_for_trainers),
]


def main() -> int:
    """Run the sets, then print the summary."""
    parser = argparse.ArgumentParser(description="Run every test that this machine can run.")
    parser.add_argument("targets", nargs="*", help="Sets to run; by default all.")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - {one.target for one in SETS}:
        known = ", ".join(one.target for one in SETS)
        print(f"error: no set is called {', '.join(sorted(unknown))}; there are {known}")
        return 2
    rows = []
    failed = False
    for one in SETS:
        if arguments.targets and one.target not in arguments.targets:
            rows.append((one.target, "left out", "it was not asked for"))
        elif (why := one.obstacle()) is not None:
            rows.append((one.target, "left out", why))
        else:
            began = time.monotonic()
            status, counts = make(one.target)
            failed |= status != 0
            took = f"{counts}; {time.monotonic() - began:.0f} s"
            rows.append((one.target, "FAILED" if status else "passed", took))
    print("\nSummary")
    for target, result, detail in rows:
        print(f"  {result:8}  {target:16}  {detail}")
    return 1 if failed else 0


def make(target: str) -> tuple[int, str]:
    """Run a target; return its exit status, and pytest's counts."""
    print(f"\n==== make {target}", flush=True)
    counts = "no test was counted"
    with subprocess.Popen(  # nosec B603 B607  # no shell
        ["make", target],
        cwd=ROOT,
        env={**os.environ, "OPENENV_TESTS": "all"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if found := COUNTS.search(line):
                counts = found[1]
    return process.returncode, counts


if __name__ == "__main__":
    sys.exit(main())
