"""The public package in a virtual environment of its own, and servers run by either Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.venvs import python_of

HERE = Path(__file__).parent
PEER = Path(__file__).parents[2] / ".peer"
PUBLIC = "openenv==0.10.0"

Serve = Callable[..., list[str]]
Play = Callable[..., Any]


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENENV"))}
    return {**kept, **changes}


@pytest.fixture(scope="session")
def peer_python() -> str:
    """The Python of `.peer`, made when first asked for. Skips only if the index is out of reach."""
    return python_of(PEER, PUBLIC)


@contextmanager
def served(python: str, targets: tuple[str, ...], env_vars: dict[str, str]) -> Iterator[list[str]]:
    """Serve applications from one process of `python` until the block ends."""
    command = [python, str(HERE / "serve.py"), *targets]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**{"OPENENV_DEBUG": "1", **env_vars}),  # the public package tells all
    ) as process:
        assert process.stdin and process.stdout
        try:
            ports = json.loads(process.stdout.readline() or "null")
            assert ports, f"{python} did not serve {targets}"
            yield [f"http://127.0.0.1:{port}" for port in ports]
        finally:
            process.stdin.close()
            process.wait(15)


@pytest.fixture(scope="module")
def serve(peer_python: str) -> Iterator[Serve]:
    """`serve("peer", targets...)` or `serve("ours", targets...)`: the base URL of each target.

    Keywords become environment variables.
    """
    pythons = {"peer": peer_python, "ours": sys.executable}
    with ExitStack() as stack:
        yield lambda whose, *targets, **env_vars: stack.enter_context(
            served(pythons[whose], targets, env_vars)
        )


@pytest.fixture(scope="module")
def play(peer_python: str) -> Play:
    """`play("peer", script, arguments...)`: what the script printed, run by that Python."""
    pythons = {"peer": peer_python, "ours": sys.executable}

    def play(whose: str, script: str, *arguments: str) -> Any:
        command = [pythons[whose], str(HERE / script), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return play
