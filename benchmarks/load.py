"""The load generator, which is compiled when its source is newer, and runs on its own core."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders import Frames

__all__ = ["Load", "compiled"]

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
NO_COMPILER = "error: a C compiler is needed: apt-get install gcc libc6-dev"

Result = dict[str, Any]


def compiled() -> Path:
    """Compile the load generator if necessary, and return its path.

    Raises:
        SystemExit: There is no C compiler, or the source does not compile.
    """
    source, program = HERE / "load.c", BUILD / "load"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit(NO_COMPILER)
    BUILD.mkdir(exist_ok=True)
    done = subprocess.run([compiler, "-std=c11", "-O2", "-o", program, source], check=False)
    if done.returncode:
        raise SystemExit(f"error: {source} does not compile")
    return program


@dataclass(frozen=True)
class Load:
    """The load generator on its core."""

    program: Path
    core: int

    def run(self, port: int, frames: Frames, *options: object) -> Result:
        """Drive the server on `port`, and return what the load generator measured."""
        done = subprocess.run(
            self._command(port, frames, options), check=True, stdout=subprocess.PIPE, text=True
        )
        result: Result = json.loads(done.stdout)
        return result

    @contextmanager
    def held(self, port: int, frames: Frames, *options: object) -> Iterator[Result]:
        """Drive the server like `run`, and keep the sessions open for a block."""
        ready = BUILD / "ready"
        ready.unlink(missing_ok=True)
        command = self._command(port, frames, (*options, "--hold", 600, "--ready-file", ready))
        result: Result = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                while not ready.exists() and process.poll() is None:
                    _sleep_a_little(process)
                yield result
            finally:
                process.terminate()
                assert process.stdout is not None
                result.update(json.loads(process.stdout.read()))

    def _command(self, port: int, frames: Frames, options: Sequence[object]) -> list[str]:
        pinned = ["taskset", "-c", str(self.core), str(self.program), "--port", str(port)]
        return [*pinned, *frames.options(BUILD / "frames"), *map(str, options)]


def _sleep_a_little(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(0.05)
    except subprocess.TimeoutExpired:
        return
