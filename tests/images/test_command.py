"""`openenv build` as its users have it, as far as it goes without an engine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from support.commands import ENVIRONMENTS, environ, run_openenv
from support.zygote import run_python

ECHO = str(ENVIRONMENTS / "echo_env")


@pytest.mark.slow
def test_print_shows_the_dockerfile_and_the_context_and_builds_nothing(tmp_path: Path) -> None:
    done = run_openenv("build", ECHO, "--print", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith((ENVIRONMENTS / "echo_env/server/Dockerfile").read_text())
    assert "  server/app.py\n" in done.stdout
    assert "made  .openenv/requirements.lock" in done.stdout
    assert "nothing was built" in done.stderr


@pytest.mark.slow
def test_print_as_json_is_for_programs(tmp_path: Path) -> None:
    done = run_openenv(
        *(
            "build",
            ECHO,
            "--print",
            "--json",
            "--base",
            "mine:1",
            "--build-arg",
            "API_KEY=hunter222",
        ),
        cwd=tmp_path,
    )
    told = json.loads(done.stdout)
    assert told["tags"] == ["echo-env:latest", "openenv-echo:latest"]
    assert told["arguments"]["BASE"] == "mine:1"
    assert {
        "path": "server/app.py",
        "size_bytes": os.stat(f"{ECHO}/server/app.py").st_size,
    } in told["context"]
    assert "hunter222" not in done.stdout + done.stderr
    assert "the Dockerfile has no ARG API_KEY" in done.stderr


@pytest.mark.extended("locks or builds a project")
@pytest.mark.slow
def test_a_secret_in_the_context_is_left_out_and_said(tmp_path: Path) -> None:
    assert run_openenv("init", "my_env", cwd=tmp_path).returncode == 0
    (tmp_path / "my_env" / ".env").write_text("TOKEN=x")
    done = run_openenv("build", "my_env", "--print", cwd=tmp_path)
    assert "left out, as they look like secrets: .env;" in done.stderr
    assert ".env\n" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere",), 1, "has no openenv.yaml"),
        ((ECHO, "--build-arg", "A"), 2, "--build-arg A is not of the form NAME=VALUE"),
        ((ECHO, "-t", "No Name"), 2, "'No Name' cannot be the name of an image"),
        ((ECHO, "-f", "nowhere"), 1, "the Dockerfile nowhere does not exist"),
        ((ECHO, "-c", "nowhere"), 1, "is not a directory"),
        ((ECHO, "--ca-file", "nowhere"), 2, "--ca-file nowhere does not exist"),
        ((ECHO, "--push", "https://x.example"), 2, "hint: --push x.example"),
        ((ECHO, "--push", "x", "--offline"), 2, "exclude each other"),
        ((ECHO, "--push-without-tls"), 2, "requires --push"),
        ((ECHO, "--engine", "lxc"), 2, "lxc"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    done = run_openenv("build", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr


@pytest.mark.slow
def test_an_option_of_the_lock_means_nothing_to_a_dockerfile_without(tmp_path: Path) -> None:
    (tmp_path / "Own").write_text("FROM x\nRUN pip install .")
    done = run_openenv("build", ECHO, "-f", "Own", "--wheels", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "--wheels has no effect on a Dockerfile that ignores the lock" in done.stderr
    assert "is not this checkout's OpenEnv" in done.stderr


@pytest.mark.slow
def test_without_an_engine_it_says_what_to_install(tmp_path: Path) -> None:
    done = run_python(
        [sys.executable, "-m", "openenv.cli", "build", ECHO],
        env={**environ(), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "no engine can build an image here: docker is not installed" in done.stderr
    assert "hint: install Docker" in done.stderr
