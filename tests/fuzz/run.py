"""Fuzz what reads others' words: ``make fuzz``.

    python tests/fuzz/run.py                        every target, 300 s each
    python tests/fuzz/run.py v0 mcp --seconds 60    some of them
    python tests/fuzz/run.py v0 --replay FILE       one input, to see what is wrong with it
    python tests/fuzz/run.py --list                 what there is

Inputs are chosen by Atheris (libFuzzer), which looks for those that reach new code; what holds for
each is in ``invariants.py``. What was found new is kept in ``outputs/fuzz/TARGET/`` for the next
time; an input that breaks something ends its target, and lies there too. Mend what it shows, and
add it to ``corpus/TARGET/``, which ``make test`` reads. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

OUTPUTS = ROOT / "outputs" / "fuzz"
MOST_BYTES = 20_000  # of an input as it is chosen; what it stands for may be larger
SLOWEST_S = 60
RUNS = re.compile(r"^Done (\d+) runs", re.MULTILINE)
COVERED = re.compile(r"\bcov: (\d+) ft: (\d+) corp: (\d+)")
EXAMPLE = re.compile(r"Test unit written to (\S+)")


@dataclass
class Result:
    """What fuzzing one target came to.

    Attributes:
        target: Its name.
        seconds: How long it took.
        inputs: How many were tried.
        covered: Edges of the code that they reached.
        finding: What does not hold; None if all does.
        example: The input that shows it.
    """

    target: str
    seconds: float
    inputs: int
    covered: int
    finding: str | None = None
    example: str | None = None


def main() -> int:
    """Read the command line, and fuzz."""
    parser = argparse.ArgumentParser(description="Fuzz what reads others' words.")
    parser.add_argument("targets", nargs="*", help="Which. Default: all.")
    parser.add_argument("--seconds", type=int, default=300, help="For each. Default: 300.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="At once.")
    parser.add_argument("--json", action="store_true", help="Write the results as JSON.")
    parser.add_argument("--list", action="store_true", help="List the targets, and end.")
    parser.add_argument("--replay", type=Path, help="Try this input, or those of a folder.")
    parser.add_argument(
        "--here", action="store_true", help=argparse.SUPPRESS
    )  # one, in this process
    arguments = parser.parse_args()
    if arguments.here:
        return fuzz_here(arguments.targets[0], arguments.seconds)
    from fuzz.targets import TARGETS

    if arguments.list:
        for target in TARGETS.values():
            print(f"{target.name:12} {target.about}")
        return 0
    unknown = sorted(set(arguments.targets) - set(TARGETS))
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    names = arguments.targets or list(TARGETS)
    if arguments.replay:
        if len(names) != 1:
            parser.error("name the target that the input is for")
        return replay(names[0], arguments.replay)
    if importlib.util.find_spec("atheris") is None:
        parser.error("install atheris to choose inputs: `make fuzz` does")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = []
        for result in pool.map(lambda name: fuzz(name, arguments.seconds), names):
            results.append(result)
            if not arguments.json:
                tell(result)
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    return 1 if any(result.finding for result in results) else 0


def tell(result: Result) -> None:
    """Print a result."""
    rate = result.inputs / max(result.seconds, 1)
    print(
        f"{result.target:12} {result.seconds:5.0f} s {result.inputs:9,} inputs {rate:7.0f}/s "
        f"{result.covered:6,} edges  {'FINDING' if result.finding else 'nothing found'}",
        flush=True,
    )
    if result.finding:
        print(f"    {result.finding}\n    {result.example}", flush=True)


def replay(name: str, path: Path) -> int:
    """Try one input, or all of a folder."""
    from fuzz.targets import TARGETS

    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    with TARGETS[name].open() as watch:
        for seed in TARGETS[name].inputs():  # what is imported for them costs once
            watch.run(seed)
        for one in paths:
            try:
                watch(one.read_bytes())
            except BaseException:
                print(f"Test unit written to {one}")
                raise
    print(f"nothing is wrong with {len(paths)} of them")
    return 0


# ------------------------------------------------------------------ many


def fuzz(name: str, seconds: int) -> Result:
    """Fuzz one target in a process of its own."""
    folder = OUTPUTS / name
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    log = OUTPUTS / f"{name}.log"
    command = [sys.executable, __file__, name, "--here", "--seconds", str(seconds)]
    again = [sys.executable, __file__, name, "--replay", str(folder)]
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
        if done.returncode == 0:
            output.flush()
            done = subprocess.run(again, stdout=output, stderr=subprocess.STDOUT, check=False)
    said = log.read_text(errors="replace")
    covered = COVERED.findall(said)
    runs = RUNS.findall(said) or re.findall(r"^#(\d+)\t", said, re.MULTILINE)
    result = Result(
        name,
        round(time.monotonic() - began, 1),
        int(runs[-1]) if runs else 0,
        int(covered[-1][0]) if covered else 0,
    )
    if done.returncode != 0 or not runs:
        result.finding = _first_line(said) or f"it ended with {done.returncode}; see {log}"
        written = EXAMPLE.findall(said)
        result.example = written[-1] if written else str(log)
    return result


def _first_line(said: str) -> str | None:
    """What was raised."""
    raised = re.findall(
        r"^(?:fuzz\.invariants\.Finding|\w+(?:\.\w+)*(?:Error|Exception)): .*", said, re.MULTILINE
    )
    return raised[-1][:500] if raised else None


def fuzz_here(name: str, seconds: int) -> int:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    os.environ["OPENENV_FUZZ_SLOWER"] = "10"  # what is kept is tried again without tracing
    with atheris.instrument_imports(include=["openenv"]):
        from fuzz.targets import TARGETS

        target = TARGETS[name]
        opened = target.open()
        watch = opened.__enter__()
        seeds = target.inputs()
        for seed in seeds:  # and all is imported that is needed for them
            watch.run(seed)
    begin = OUTPUTS / f"{name}-seeds"
    begin.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (begin / f"{number:03}").write_bytes(seed)

    def one(data: bytes) -> None:
        try:
            watch(data)
        except BaseException:
            traceback.print_exc()
            raise

    flags = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-timeout={SLOWEST_S}",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={OUTPUTS / name}-",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, str(OUTPUTS / name), str(begin)], one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
