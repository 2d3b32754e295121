from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import environ, run_openenv

SLOW_TO_IMPORT = {
    *("fastapi", "matplotlib", "pydantic", "rich", "uvicorn", "websockets", "yaml"),
    "openenv.cli.commands.serve",
}
if sys.version_info >= (3, 11):  # before, TimeoutError is asyncio's
    SLOW_TO_IMPORT.add("asyncio")


@pytest.mark.slow
def test_help_names_the_commands_and_the_completion(tmp_path: Path) -> None:
    done = run_openenv("--help", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("init", "serve", "demo", "--install-completion", "--show-completion"):
        assert word in done.stdout


@pytest.mark.slow
def test_the_bare_command_prints_help_and_exits_2(tmp_path: Path) -> None:
    done = run_openenv(cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage" in done.stderr


def test_a_wrong_choice_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    done = run_openenv("build", "--engine", "dokcer", cwd=tmp_path)
    assert done.returncode == 2
    assert "'dokcer' is not one of 'docker', " in done.stderr
    assert done.stderr.endswith("hint: did you mean docker?\n")


def test_version(tmp_path: Path) -> None:
    done = run_openenv("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("openenv ")


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "meant"), [("srve", "serve"), ("int", "init")])
def test_an_unknown_command_is_answered_with_the_one_that_was_meant(
    typed: str, meant: str, tmp_path: Path
) -> None:
    done = run_openenv(typed, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"Error: there is no command '{typed}' of openenv\nhint: did you mean {meant}?\n"
    )


@pytest.mark.slow
def test_an_unknown_option_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    done = run_openenv("init", "--outptu-dir", "here", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: there is no option --outptu-dir of openenv init\nhint: did you mean --output-dir?\n"
    )


def test_a_missing_argument_is_answered_with_an_example(tmp_path: Path) -> None:
    done = run_openenv("init", cwd=tmp_path)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error == "Error: Missing argument 'NAME'"
    assert hint == "hint: such as: openenv init my_env; `openenv init --help` says more"


def test_nothing_slow_is_imported_before_a_command_runs() -> None:
    script = "import sys, openenv.cli.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ(), capture_output=True, text=True, check=True
    )
    assert SLOW_TO_IMPORT.isdisjoint(done.stdout.split())
