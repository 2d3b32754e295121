from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import environ, run_openenv

SLOW_TO_IMPORT = {"asyncio", "fastapi", "matplotlib", "pydantic", "uvicorn", "websockets", "yaml"}


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
    assert meant in done.stderr


@pytest.mark.slow
def test_an_unknown_option_is_misuse(tmp_path: Path) -> None:
    assert run_openenv("serve", "--prot", "8000", cwd=tmp_path).returncode == 2


def test_nothing_slow_is_imported_before_a_command_runs() -> None:
    script = "import sys, openenv.cli.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ(), capture_output=True, text=True, check=True
    )
    assert SLOW_TO_IMPORT.isdisjoint(done.stdout.split())
