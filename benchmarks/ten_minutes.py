"""From an idea to a trained policy: follow docs/guides/ten-minutes.md, and time it.

The program needs Podman and the images of `scripts/containers`. The Hub is the tests' stand-in, and
OpenEnv is this checkout's; everything else is as for a reader.

        python benchmarks/ten_minutes.py           # prints the time of each section
        python benchmarks/ten_minutes.py --write   # also writes the times into the page
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.hub_server import hub  # noqa: E402

PAGE = ROOT / "docs" / "guides" / "ten-minutes.md"
BEGIN, END = "<!-- generated: what-it-took -->\n", "<!-- end -->\n"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Options for this machine: builds share its network and trust its certificates.
HERE = (
    "--base localhost/openenv-test-base:latest --network host "
    "--ca-file /etc/ssl/certs/ca-certificates.crt"
)


class Block(NamedTuple):
    """A fenced block of the page, with the heading of its section."""

    section: str
    language: str
    text: str


class StepFailedError(Exception):
    """A command of the page failed."""


def blocks_of(page: str) -> Iterator[Block]:
    """Yield every block of a page, in order."""
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        section, _, content = part.partition("\n")
        for match in FENCE.finditer(content):
            yield Block(section, match[1], match[2])


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, each with its expected output."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n", part)
        assert command is not None
        yield command[0].strip(), part[command.end() :].strip()


def walk(directory: Path, environment: dict[str, str], port: int) -> dict[str, float]:
    """Follow the page, and return the seconds of each section's commands.

    Raises:
        StepFailedError: A command failed, or its output differs.
    """
    took: dict[str, float] = {}
    for block in blocks_of(PAGE.read_text("utf-8")):
        began = time.perf_counter()
        text = block.text.replace("localhost:8000", f"localhost:{port}")
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        text = text.replace("--name guess", f"--name guess-{port}")
        text = text.replace("stop guess", f"stop guess-{port}")
        block = block._replace(text=text)
        file = re.match(r"# ([\w./-]+\.\w+)\n", text)
        if file is not None and block.language in ("python", "yaml"):
            (directory / file[1]).write_text(text, "utf-8")
        for command, expected in commands_of(block) if block.language == "console" else ():
            _run(command, expected, directory, environment)
        took[block.section] = took.get(block.section, 0.0) + time.perf_counter() - began
    return took


def _run(command: str, expected: str, directory: Path, environment: dict[str, str]) -> None:
    print(f"$ {command}", file=sys.stderr, flush=True)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    print(done.stdout, file=sys.stderr, flush=True)
    if done.returncode != 0:
        raise StepFailedError(f"$ {command}\nexited with {done.returncode}:\n{done.stdout}")
    pattern = ".*".join(map(re.escape, expected.split("...")))
    if expected and not re.search(pattern, done.stdout):
        raise StepFailedError(f"$ {command}\nwas to print\n{expected}\nbut printed\n{done.stdout}")


@contextmanager
def machine() -> Iterator[tuple[Path, dict[str, str], int]]:
    """Yield a directory, its environment variables and a port; all are removed afterwards."""
    (ROOT / "outputs").mkdir(exist_ok=True)  # within the checkout, so that images hold its OpenEnv
    directory = Path(tempfile.mkdtemp(prefix="ten-minutes-", dir=ROOT / "outputs"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        with hub() as server:
            yield directory, _environment(directory, server.url, server.token), port
    finally:
        subprocess.run(
            ["podman", "rm", "--force", "--ignore", f"guess-{port}"],
            capture_output=True,
            env=os.environ | _containers(),
        )
        shutil.rmtree(directory, ignore_errors=True)


def _environment(directory: Path, url: str, token: str) -> dict[str, str]:
    programs = directory / ".programs"
    programs.mkdir()
    _program(programs / "python", f'exec "{sys.executable}" "$@"')
    _program(
        programs / "openenv",
        f'case "$1" in build|validate) set -- "$@" {HERE};; esac\n'
        f'exec "{sys.executable}" -m openenv.cli "$@"',
    )
    wheels = directory / ".wheels"
    uv = Path(sys.executable).with_name("uv")
    built = [str(uv), "build", "--wheel", "--quiet", "--out-dir", str(wheels), str(ROOT)]
    subprocess.run(built, check=True, timeout=300)
    (wheel,) = wheels.glob("*.whl")
    constraint = wheels / "constraints.txt"
    constraint.write_text(f"openenv=={wheel.name.split('-')[1]}\n")
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **kept,
        **_containers(),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(constraint),
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "HF_ENDPOINT": url,
        "HF_TOKEN": token,
        "HF_HOME": str(directory / ".hub"),
        "HF_HUB_DISABLE_XET": "1",
    }


def _containers() -> dict[str, str]:
    told = ROOT / ".containers" / "containers.conf"
    return {"CONTAINERS_CONF": str(told)} if told.exists() else {}


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def table(took: dict[str, float]) -> str:
    """Return the times of the sections as a table."""
    rows = [f"| {section} | {seconds:.0f} s |" for section, seconds in took.items()]
    total = f"| all of it | {sum(took.values()):.0f} s |"
    return "\n".join(["| | |", "| --- | ---: |", *rows, total]) + "\n"


def main() -> None:
    """Follow the page, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write it into the page")
    arguments = parser.parse_args()
    try:
        with machine() as made:
            took = walk(*made)
    except StepFailedError as error:
        raise SystemExit(str(error)) from error
    print(table(took), end="")
    if arguments.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        where = f"On {os.cpu_count()} cores, with Podman, and a Hub on the same machine."
        text = f"{BEGIN}{table(took)}\n{where}\n{END}"
        PAGE.write_text(before + text + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main()
