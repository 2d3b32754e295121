"""From `openenv init` to a client in a fresh virtual environment, by way of the Hub."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.commands import SOURCES, run_openenv
from support.hub_server import hub as hub_server
from support.venvs import python_of

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

PLAY = """
from openenv import AutoEnv
with AutoEnv.from_env("me/talker_env", trust_remote_code=True) as env:
    print(type(env).__name__, env.reset().observation.echoed_message)
"""


@pytest.mark.extended("installs packages into a virtual environment")
def test_what_is_pushed_is_installed_by_its_name_and_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_of(tmp_path / "venv", "-e", str(SOURCES.parent), "huggingface_hub>=2", "pip")
    with hub_server() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        assert run_openenv("init", "talker_env", cwd=tmp_path).returncode == 0
        done = run_openenv("push", "talker_env", "--private", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        programs = tmp_path / "programs"  # neither git nor uv
        programs.mkdir()
        (programs / "sh").symlink_to("/bin/sh")
        monkeypatch.setenv("PATH", str(programs))
        monkeypatch.delenv("PYTHONPATH", raising=False)
        played = subprocess.run(
            [python, "-c", PLAY], cwd=tmp_path, capture_output=True, text=True, timeout=200
        )
        assert played.returncode == 0, played.stderr
        assert played.stdout.startswith("TalkerEnv ")
        frozen = subprocess.run(
            [python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True
        ).stdout
        sha = hub.repositories["me/talker_env"].sha
        assert f"openenv-talker-env @ git+{hub.url}/spaces/me/talker_env@{sha}" in frozen
