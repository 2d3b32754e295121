"""What several tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import run_openenv


@pytest.fixture(scope="session")
def my_game_env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree that `openenv init my_game_env` writes; not to be changed."""
    directory = tmp_path_factory.mktemp("written")
    done = run_openenv("init", "my_game_env", "--no-lock", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory / "my_game_env"
