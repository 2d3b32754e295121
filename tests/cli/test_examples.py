"""The examples at the end of each command's help run and end, and the help is aligned."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from support.commands import COMMAND, environ, openenv_running
from support.token_server import token_server
from support.zygote import PythonProcess, run_python
from typer.testing import CliRunner

from echo_env import EchoAction, EchoEnv
from echo_env.server.app import app as echo_app
from openenv.cli.__main__ import app
from openenv.cli._template import TEMPLATES, EnvironmentNames, render, write_tree
from openenv.execution.recording import RecordingOptions
from openenv.server.recording import record_sessions

GROUP: Any = typer.main.get_command(app)
ENDS_WITHIN_S = 50.0

ENGINE = "needs a container engine"
HUB = "needs an account on the Hugging Face Hub"
NOT_RUN = {
    "openenv build my_env --tag my-env:1 --push ghcr.io/somebody": ENGINE,
    "openenv ps": ENGINE,
    "openenv ps --json": ENGINE,
    "openenv prune": ENGINE,
    "openenv prune --json": ENGINE,
    "openenv push my_env -r acme/my_env --private --secret LLM_KEY": HUB,
    "openenv fork openenv/echo_env --repo-id my_echo --private": HUB,
    "openenv fork openenv/echo_env -r acme/echo --secret LLM_KEY --hardware cpu-upgrade": HUB,
    "openenv deploy my_env --space acme/my_env --hardware cpu-basic": HUB,
    "openenv rollout http://localhost:8000 --policy openai:gpt-5-mini -n 64": "asks a model",
    "openenv collect reasoning_gym:gcd -o gcd --provider openai --model gpt-5-mini -n 100": (
        "asks a model"
    ),
    "openenv serve --mcp 'uvx mcp-server-time'": "installs a package from the network",
    "openenv demo": "takes a minute; test_demo runs it in short",
    "openenv demo --hands 5000 --sessions 16 --output-dir outputs/short": (
        "takes half a minute; test_demo runs it in short"
    ),
}
# These run until Ctrl-C.
SERVERS = ("serve", "gateway", "capture", "catalog serve", "mcp")
FINDINGS = "openenv doctor"  # ends with 1 on a machine that lacks something

GAME = '''\
"""A game for a Gymnasium."""

import gymnasium
from gymnasium.spaces import Discrete


class Game(gymnasium.Env):
    """Guess a digit."""

    action_space = Discrete(10)
    observation_space = Discrete(10)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 1.0, True, False, {}
'''
SCORER = '''\
"""Scores of episodes."""


def correct(episode):
    """Every episode is correct."""
    return 1.0
'''


def leaves() -> Iterator[tuple[str, Any]]:
    context = typer.Context(GROUP, info_name="openenv")
    stack = [(name, GROUP.get_command(context, name)) for name in GROUP.list_commands(context)]
    for words, command in stack:
        below = getattr(command, "commands", {})
        stack += [(f"{words} {name}", one) for name, one in below.items()]
        if not below:
            yield words, command


LEAVES = dict(leaves())
EXAMPLES = [
    (words, example.line) for words, command in LEAVES.items() for example in command.examples
]


@pytest.mark.parametrize("words", LEAVES)
def test_a_command_has_two_examples(words: str) -> None:
    lines = [example.line for example in LEAVES[words].examples]
    assert len(lines) == 2
    assert all(line == f"openenv {words}" or line.startswith(f"openenv {words} ") for line in lines)


def test_each_example_that_is_not_run_is_one_and_says_why() -> None:
    assert set(NOT_RUN) <= {line for _, line in EXAMPLES}
    assert all(NOT_RUN.values())


# ------------------------------------------------------------------ they run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the examples name."""
    place: Path = tmp_path_factory.mktemp("examples")
    names = EnvironmentNames.of("my_env")
    for target in (place / "my_env", place / "envs" / "my_env"):
        write_tree(render(names, TEMPLATES["gym"]), target)
    (place / "game.py").write_text(GAME)
    (place / "rewards.py").write_text(SCORER)
    (place / "their_repo").mkdir()
    (place / "their_repo" / "game.py").write_text(GAME)
    for line in ("init -q", "add envs", "commit -q -m environments", "tag v1.0"):
        subprocess.run(["git", "-C", str(place), *shlex.split(line)], check=True, env=git())
    app = echo_app
    record_sessions(app, "echo_env.server.app:app", RecordingOptions(place / "recorded"))
    with EchoEnv.local(app).sync() as env:
        env.reset(seed=1)
        env.step(EchoAction(message="hello"))
    (recording,) = (place / "recorded").rglob("*.jsonl")
    (place / "records").mkdir()
    recording.rename(place / "records" / "session.jsonl")
    build = "catalog build --repository-uri https://me.dev/envs --publisher me -o all.json"
    for line in (
        build,
        "rollout blackjack -n 2 -o episodes.jsonl",
        "collect blackjack -n 12 --seed 1 -o episodes",
        "eval blackjack --num-tasks 2 -o before",
        "eval blackjack --num-tasks 2 -o after",
    ):
        done = run_python([*COMMAND, *shlex.split(line)], cwd=place, env=variables(place), **SHOWN)
        assert done.returncode == 0, done.stderr
    return place


SHOWN: dict[str, Any] = {"capture_output": True, "text": True, "timeout": ENDS_WITHIN_S}


def git() -> dict[str, str]:
    who = {
        f"GIT_{role}_{part}": "me@me.dev"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    return {**os.environ, **who}


def variables(place: Path) -> dict[str, str]:
    return {**environ(), "HOME": str(place / "home"), "UV_OFFLINE": "1"}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The servers that stand in for those of the examples."""
    place = tmp_path_factory.mktemp("server")
    arguments = ("serve", "echo_env", "--port=0", "--json")
    with (
        openenv_running(*arguments, cwd=place, log=place / "log") as server,
        token_server() as model,
    ):
        url = server.first_line()["url"]
        yield {
            "http://localhost:8000/v1": model.url,
            "http://localhost:8000": url,
            "http://10.0.0.1:8000": url,
            "http://10.0.0.2:8000": url.replace("127.0.0.1", "localhost"),
            "dns://chess.internal:8000": url.replace("http", "dns"),
            "--port 9000": "--port 0",
        }


@pytest.mark.timeout(300)  # the first prepares what all need
@pytest.mark.slow("each example is a process")
@pytest.mark.parametrize(("words", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_runs_and_ends(
    words: str, line: str, prepared: Path, addresses: dict[str, str], tmp_path: Path
) -> None:
    if line in NOT_RUN:
        pytest.skip(NOT_RUN[line])
    for theirs, ours in addresses.items():
        line = line.replace(theirs, ours)
    line, _, file = line.partition(" > ")
    arguments = shlex.split(line)[1:]
    place = tmp_path / "here"
    shutil.copytree(prepared, place, symlinks=True)
    for option, value in itertools.pairwise(arguments):
        if option in ("-o", "--output-dir") and value != ".":
            made = place / value
            shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    if words in SERVERS and "--config" not in arguments:
        if "--port" not in arguments and words != "mcp":
            arguments += ["--port", "0"]
        code, said = serve_and_interrupt(arguments, place, tmp_path / "log")
        assert code in (0, 130, -signal.SIGINT), said
        return
    done = run_python([*COMMAND, *arguments], cwd=place, env=variables(place), **SHOWN)
    assert done.returncode in ((0, 1) if line.startswith(FINDINGS) else (0,)), done.stderr
    if file:
        assert done.stdout
    if "--json" in arguments:
        for data in done.stdout.splitlines()[:1]:
            json.loads(data if data != "{" else done.stdout)


def serve_and_interrupt(arguments: list[str], place: Path, log: Path) -> tuple[int, str]:
    """Press Ctrl-C once a server says that it listens; an MCP server says nothing."""
    with (
        log.open("w") as stderr,
        PythonProcess(
            [*COMMAND, *arguments],
            cwd=place,
            env=variables(place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            if arguments[0] == "mcp":
                assert process.stdin is not None and process.stdout is not None
                request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                assert json.loads(process.stdout.readline())["id"] == 1
            else:
                wait_for_address(process, log)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=ENDS_WITHIN_S)
        finally:
            process.kill()
    return process.returncode, log.read_text()


def wait_for_address(process: Any, log: Path) -> None:
    import time

    ends = time.monotonic() + ENDS_WITHIN_S
    while "http://127.0.0.1:" not in log.read_text():
        assert process.poll() is None and time.monotonic() < ends, log.read_text()
        time.sleep(0.05)


# ------------------------------------------------------------------ the help is aligned


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", LEAVES)
def test_help_is_aligned(words: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = CliRunner().invoke(app, [*words.split(), "--help"]).stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= columns
    panels: dict[str, list[str]] = {}
    for line in lines:
        if line.endswith(":") and line[:1] == " " and line[1:2] != " ":
            panels[line.strip(" :")] = []
        elif panels and line:
            panels[list(panels)[-1]].append(line)
    assert list(panels)[-1] == "Examples"  # they end the help
    for title, rows in panels.items():
        if title == "Examples":
            continue
        below = {len(row) - len(row.lstrip()) for row in rows if row[:4] == "    "}
        assert len(below) <= 1, (title, below)  # of help texts that go on, or begin, on a new line
        for row in rows:
            beside = row[2:].partition("  ")[2].lstrip() if row[:4] != "    " else ""
            assert not beside or not below or row.index(beside, 4) == min(below)
    comments = [row.index("  # ") for row in panels["Examples"] if "  # " in row[4:]]
    assert len(set(comments)) <= 1
