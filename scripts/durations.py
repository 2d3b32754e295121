"""Record the durations of the tests: ``make durations``.

Runs every test that needs no other packages once, with the plugin ``tests/support/durations.py``,
and writes:

* ``tests/durations.json``: seconds of each module, of each slow test and fixture, and of imports.
  ``tests/support/scheduling.py`` uses it to start the longest groups first;
* ``docs/pictures/test-durations.svg``: where the time goes, by directory and by kind.

The largest durations are printed. ``--from FILE`` reads the records of an earlier run
(``pytest --durations-file FILE``) instead of running the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "durations.json"
PLOT = ROOT / "docs" / "pictures" / "test-durations.svg"
# Tests and fixtures below this number of seconds count only in the sums of their modules.
LISTED_FROM_S = 0.25
PHASES = ("setup", "call", "teardown")
# The modules that the processes started by tests import most often.
IMPORTED = (
    "openenv",
    "openenv.client",
    "openenv.server.app",
    "openenv.cli.__main__",
    "pytest",
    "numpy",
)
PLOTTED = 24


def main() -> int:
    """Run the tests, or read the records of a run, and write the table and the plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--from", dest="records", type=Path, help="Records of an earlier run.")
    parser.add_argument("--keep", type=Path, help="Where to keep the records of this run.")
    parser.add_argument("pytest", nargs="*", help="Arguments of pytest, after `--`.")
    arguments = parser.parse_args()
    status = 0
    with tempfile.TemporaryDirectory() as directory:
        file = arguments.records or arguments.keep or Path(directory) / "records.json"
        if arguments.records is None:
            command = [sys.executable, "-m", "pytest", f"--durations-file={file}"]
            status = subprocess.run([*command, *arguments.pytest], cwd=ROOT).returncode  # nosec B603  # no shell
        records = json.loads(file.read_text(encoding="utf-8"))
    table = summarize(records)
    table["imports"] = {name: import_seconds(name) for name in IMPORTED}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    plot(table)
    report(table)
    return status


def summarize(records: dict[str, Any]) -> dict[str, Any]:
    """Return the table: sums by module, and single slow tests and fixtures."""
    modules: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    tests: dict[str, float] = {}
    for node_id, record in records["tests"].items():
        seconds = sum(record.get(phase, 0.0) for phase in PHASES)
        module = modules[node_id.partition("::")[0]]
        module["tests"] += 1
        module["seconds"] += seconds
        module["cpu_seconds"] += record.get("cpu", 0.0)
        module["processes"] += record.get("processes", 0)
        if seconds >= LISTED_FROM_S:
            tests[node_id] = round(seconds, 2)
    for name, seconds in records["modules"].items():
        if name in modules:
            modules[name]["import_seconds"] = seconds
    fixtures = {
        name: {"set_ups": count, "seconds": round(up, 2), "teardown_seconds": round(down, 2)}
        for name, (count, up, down) in records["fixtures"].items()
        if up + down >= LISTED_FROM_S
    }
    return {
        "machine": {"processors": os.cpu_count(), "python": platform.python_version()},
        "wall_seconds": round(records["wall"], 1),
        "modules": {
            name: {
                key: round(value, 2) if "seconds" in key else int(value)
                for key, value in sums.items()
            }
            for name, sums in sorted(modules.items())
        },
        "tests": dict(sorted(tests.items())),
        "fixtures": dict(sorted(fixtures.items(), key=lambda one: -one[1]["seconds"])),
    }


def import_seconds(name: str) -> float:
    """Return the seconds that importing a module takes in a new interpreter: the best of 3."""
    code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
    tries = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # nosec B603  # no shell
        for _ in range(3)
    ]
    return round(min(float(done.stdout) for done in tries), 3)


# ------------------------------------------------------------------ output


def report(table: dict[str, Any]) -> None:
    """Print the largest durations."""
    modules: dict[str, dict[str, float]] = table["modules"]
    total = sum(one["seconds"] for one in modules.values())
    cpu = sum(one["cpu_seconds"] for one in modules.values())
    wall = table["wall_seconds"]
    count = sum(int(one["tests"]) for one in modules.values())
    print(f"{count} tests: {total:.0f} s in all, {cpu:.0f} s of CPU, {wall} s of wall")
    _print("modules", [(one["seconds"], name) for name, one in modules.items()])
    _print("tests", [(seconds, name) for name, seconds in table["tests"].items()])
    fixtures = table["fixtures"].items()
    _print(
        "fixtures",
        [(one["seconds"], f"{name} ({one['set_ups']} set-ups)") for name, one in fixtures],
    )
    _print("collecting", [(one.get("import_seconds", 0.0), name) for name, one in modules.items()])
    _print("imports", [(seconds, name) for name, seconds in table["imports"].items()])


def _print(what: str, costs: list[tuple[float, str]], most: int = 15) -> None:
    print(f"\n{what}")
    for seconds, name in sorted(costs, reverse=True)[:most]:
        print(f"{seconds:9.2f} s  {name}")


def plot(table: dict[str, Any]) -> None:
    """Draw the time by directory: CPU time and waiting."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "openenv"  # so that the same figures give the same file
    from matplotlib import pyplot

    seconds: dict[str, float] = defaultdict(float)
    busy: dict[str, float] = defaultdict(float)
    for name, one in table["modules"].items():
        directory = os.path.dirname(name)
        seconds[directory] += one["seconds"]
        busy[directory] += one["cpu_seconds"]
    largest = sorted(seconds, key=lambda name: -seconds[name])[:PLOTTED][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 7), layout="constrained")
    axes.barh(largest, [seconds[name] for name in largest], color="#c9d3f5", label="wall time")
    axes.barh(
        largest, [busy[name] for name in largest], height=0.4, color="#4f5bd5", label="CPU time"
    )
    axes.set_xlabel("seconds, summed over all tests of a directory")
    axes.legend(loc="lower right")
    figure.savefig(PLOT, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
