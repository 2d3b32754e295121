"""The cost of importing and installing the client, beside the public package.

    python benchmarks/import_cost.py --peer .peer/bin/python --install

Every import runs in a fresh interpreter. One round runs each import once, rounds follow each other,
and a first round that fills the caches does not count. So other load on the machine affects all
imports equally. Times are those of the whole process. An install is what pip puts into an empty
virtual environment, without pip and setuptools.

Prints a table, or JSON with ``--json``, and writes ``results/import_cost.json`` and its section of
``RESULTS.md`` beside this file. The exit status is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

OURS, PEER = "ours", "public 0.10"

# The statements that a target compares: ours, and the equivalent one for the peer.
CLIENT = "from openenv import EnvClient"
PEER_CLIENT = "from openenv.core import EnvClient"
STATEMENTS = (
    (OURS, "pass"),
    (OURS, "from pydantic import BaseModel"),
    (OURS, CLIENT),
    (OURS, PEER_CLIENT),
    (PEER, PEER_CLIENT),
    (PEER, "from openenv import GenericEnvClient"),
)

TIME_TARGET, MODULES_TARGET = 1 / 20, 1 / 8
DISTRIBUTIONS_TARGET, MEGABYTES_TARGET = 40, 90

COUNT_MODULES = "import sys; print(len(sys.modules))"
MEASURE_INSTALL = """
import importlib.metadata as metadata, json
counted = [d for d in metadata.distributions() if d.name not in ("pip", "setuptools", "wheel")]
paths = {f.locate().resolve() for d in counted for f in d.files or ()}
size = sum(p.stat().st_size for p in paths if p.is_file())
print(json.dumps({"distributions": len({d.name for d in counted}), "megabytes": size / 1e6}))
"""
MAKE_PEER = "python3 -m venv .peer && .peer/bin/pip install openenv==0.10.0"
VERSION = "import importlib.metadata as metadata; print(metadata.version('openenv'))"


@dataclass(frozen=True)
class Import:
    """The measurements of one statement."""

    whose: str
    statement: str
    median_ms: float
    best_ms: float
    modules: int


@dataclass(frozen=True)
class Install:
    """The contents of an install into an empty environment; `megabytes` are millions of bytes."""

    whose: str
    distributions: int
    megabytes: float


@dataclass(frozen=True)
class Target:
    """An upper limit of a figure."""

    what: str
    measured: float
    limit: float

    @property
    def is_met(self) -> bool:
        return self.measured <= self.limit


class Interpreter:
    """A Python of one side; ours finds this checkout first, the peer's does not find it."""

    def __init__(self, whose: str, executable: Path) -> None:
        self.whose = whose
        self.executable = executable.absolute()  # resolving the link would leave the venv
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self._environment = kept | ({"PYTHONPATH": str(ROOT / "src")} if whose == OURS else {})

    def run(self, code: str) -> str:
        done = subprocess.run(
            [self.executable, "-c", code],
            env=self._environment,
            cwd=tempfile.gettempdir(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout

    def time_ms(self, statement: str) -> float:
        began = time.perf_counter()
        self.run(statement)
        return (time.perf_counter() - began) * 1e3

    def modules(self, statement: str) -> int:
        return int(self.run(f"{statement}\n{COUNT_MODULES}"))

    def install(self) -> Install:
        return Install(self.whose, **json.loads(self.run(MEASURE_INSTALL)))


def measure_imports(
    interpreters: dict[str, Interpreter], rounds: int, progress: Callable[[str], None]
) -> list[Import]:
    times: dict[tuple[str, str], list[float]] = {subject: [] for subject in STATEMENTS}
    for number in range(rounds + 1):
        progress(f"round {number} of {rounds}")
        for whose, statement in STATEMENTS:
            took = interpreters[whose].time_ms(statement)
            if number:
                times[whose, statement].append(took)
    return [
        Import(
            whose,
            statement,
            statistics.median(taken),
            min(taken),
            interpreters[whose].modules(statement),
        )
        for (whose, statement), taken in times.items()
    ]


def measure_fresh_install(progress: Callable[[str], None]) -> Install:
    """Install this checkout, without extras, into an empty environment, and measure the install."""
    with tempfile.TemporaryDirectory() as directory:
        progress("installing into a fresh environment")
        venv.create(directory, with_pip=True)
        python = Path(directory) / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ROOT],
            check=True,
            stdout=sys.stderr,
        )
        return Interpreter(OURS, python).install()


def targets(imports: list[Import], installs: list[Install]) -> Iterator[Target]:
    ours = _find(imports, OURS, CLIENT)
    peer = _find(imports, PEER, PEER_CLIENT)
    yield Target("time of the import, to the peer's", ours.median_ms / peer.median_ms, TIME_TARGET)
    yield Target("modules it loads, to the peer's", ours.modules / peer.modules, MODULES_TARGET)
    for install in installs:
        if install.whose == OURS:
            yield Target("distributions", install.distributions, DISTRIBUTIONS_TARGET)
            yield Target("megabytes", install.megabytes, MEGABYTES_TARGET)


def _find(imports: list[Import], whose: str, statement: str) -> Import:
    return next(i for i in imports if (i.whose, i.statement) == (whose, statement))


def our_version() -> str:
    """Return the version of this checkout, installed or not."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found: list[str] = re.findall(r'^version = "(.+)"', text, re.MULTILINE)
    return found[0]


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


def to_markdown(report: dict[str, Any]) -> str:
    peer = _find([Import(**i) for i in report["imports"]], PEER, PEER_CLIENT)
    lines = [
        f"openenv {report['versions'][OURS]} beside the public package "
        f"{report['versions'][PEER]}; Python {report['machine']['python']}, "
        f"{report['machine']['system']}, {report['machine']['cpus']} CPUs, "
        f"{report['rounds']} interleaved rounds, {report['date']}.",
        "",
        "| whose | statement | median ms | best ms | modules | of the peer's time |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in (Import(**i) for i in report["imports"]):
        ratio = peer.median_ms / row.median_ms
        figures = f"{row.median_ms:.0f} | {row.best_ms:.0f} | {row.modules} | 1/{ratio:.1f}"
        lines += [f"| {row.whose} | `{row.statement}` | {figures} |"]
    lines += ["", "| whose | distributions | MB |", "| --- | ---: | ---: |"]
    for install in (Install(**i) for i in report["installs"]):
        lines += [f"| {install.whose} | {install.distributions} | {install.megabytes:.1f} |"]
    lines += ["", "| target | measured | limit | |", "| --- | ---: | ---: | --- |"]
    for target in report["targets"]:
        measured, limit = _figure(target["measured"]), _figure(target["limit"])
        verdict = "met" if target["met"] else "MISSED"
        lines += [f"| {target['what']} | {measured} | {limit} | {verdict} |"]
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"1/{1 / value:.1f}" if value < 1 else f"{value:.4g}"


def write_section(path: Path, name: str, text: str) -> None:
    """Put `text` under the heading `name` of a Markdown file, replacing the old text."""
    old = path.read_text(encoding="utf-8") if path.exists() else "# Results\n"
    before, _, rest = old.partition(f"\n## {name}\n")
    _, heading, after = rest.partition("\n## ")
    path.write_text(
        f"{before.rstrip()}\n\n## {name}\n\n{text}\n" + (heading + after), encoding="utf-8"
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="our Python")
    parser.add_argument(
        "--peer",
        type=Path,
        default=ROOT / ".peer" / "bin" / "python",
        help="Python of a virtual environment that holds the public package alone",
    )
    parser.add_argument("--rounds", type=int, default=10, help="rounds to count (%(default)s)")
    parser.add_argument("--install", action="store_true", help="measure a fresh install too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def main() -> int:
    options = _parse()
    if not options.peer.exists():
        print(f"{options.peer} is not there. Make it: {MAKE_PEER}", file=sys.stderr)
        return 2
    interpreters = {
        OURS: Interpreter(OURS, options.python),
        PEER: Interpreter(PEER, options.peer),
    }

    def progress(words: str) -> None:
        print(words, file=sys.stderr)

    imports = measure_imports(interpreters, options.rounds, progress)
    installs = [interpreters[PEER].install()]
    if options.install:
        installs.insert(0, measure_fresh_install(progress))
    found = list(targets(imports, installs))
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": {
            OURS: our_version(),
            PEER: interpreters[PEER].run(VERSION).strip(),
        },
        "rounds": options.rounds,
        "imports": [asdict(i) for i in imports],
        "installs": [asdict(i) for i in installs],
        "targets": [asdict(t) | {"met": t.is_met} for t in found],
    }
    as_json = json.dumps(report, indent=2)
    as_markdown = to_markdown(report)
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "import_cost.json").write_text(f"{as_json}\n", encoding="utf-8")
    write_section(HERE / "RESULTS.md", "Cost of an import", as_markdown)
    print(as_json if options.json else as_markdown)
    return 0 if all(target.is_met for target in found) else 1


if __name__ == "__main__":
    sys.exit(main())
