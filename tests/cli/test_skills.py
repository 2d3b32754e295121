from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import COMMAND, environ, run_openenv
from support.zygote import run_python

import openenv

pytestmark = pytest.mark.slow  # programs are started

NAME = "openenv-cli"


@pytest.fixture
def add(tmp_path: Path) -> Any:
    """Run `openenv skills add` in a project, beside which there is a home directory."""
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return run_python(
            [*COMMAND, "skills", "add", *options],
            cwd=project,
            env={**environ(), "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_the_skill_has_front_matter_and_every_command(tmp_path: Path) -> None:
    done = run_openenv("skills", "preview", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    empty, front, text = done.stdout.split("---\n", 2)
    assert empty == ""
    told = yaml.safe_load(front)
    assert set(told) == {"name", "description"}
    assert told["name"] == NAME and len(told["description"]) < 1024
    for words in ("init", "serve", "skills add", "doctor"):
        assert f"\n- `openenv {words}`: " in text
    assert f"openenv {openenv.__version__}" in text
    assert "<!--" not in text


def test_it_is_written_once_and_linked_relatively(add: Any, tmp_path: Path) -> None:
    done = add("--claude", "--codex", "--cursor", "--opencode", "--json")
    assert done.returncode == 0, done.stderr
    project = tmp_path / "project"
    central = project / ".agents" / "skills" / NAME
    assert (central / "SKILL.md").read_text().startswith("---\nname: openenv-cli\n")
    for assistant in ("claude", "codex", "cursor", "opencode"):
        place = project / f".{assistant}" / "skills" / NAME
        assert os.readlink(place) == f"../../.agents/skills/{NAME}"
        assert (place / "SKILL.md").is_file()
    told = json.loads(done.stdout)
    assert told["path"] == str(central) and len(told["links"]) == 4


def test_it_may_be_for_every_project(add: Any, tmp_path: Path) -> None:
    assert add("-g", "--claude", "--opencode").returncode == 0
    home = tmp_path / "home"
    assert os.readlink(home / ".claude" / "skills" / NAME) == f"../../.agents/skills/{NAME}"
    place = home / ".config" / "opencode" / "skills" / NAME
    assert os.readlink(place) == f"../../../.agents/skills/{NAME}"
    assert list((tmp_path / "project").iterdir()) == []


def test_it_may_go_to_a_directory_alone(add: Any, tmp_path: Path) -> None:
    assert add("--dest", "mine").returncode == 0
    assert [one.name for one in (tmp_path / "project").iterdir()] == ["mine"]
    assert (tmp_path / "project" / "mine" / NAME / "SKILL.md").is_file()


@pytest.mark.parametrize("option", ["--claude", "--codex", "--cursor", "--opencode", "--global"])
def test_a_directory_of_its_own_excludes_assistants(add: Any, option: str, tmp_path: Path) -> None:
    done = add("--dest", "mine", option)
    assert done.returncode == 1
    assert f"Error: --dest and {option} exclude each other" in done.stderr
    assert list((tmp_path / "project").iterdir()) == []


def test_what_is_there_is_replaced_by_force_only(add: Any, tmp_path: Path) -> None:
    assert add().returncode == 0
    skill = tmp_path / "project" / ".agents" / "skills" / NAME / "SKILL.md"
    skill.write_text("of my own")
    refused = add("--claude")
    assert refused.returncode == 1
    assert "already exists\nhint: --force replaces it" in refused.stderr
    assert skill.read_text() == "of my own"
    assert not (tmp_path / "project" / ".claude").exists()
    assert add("--claude", "--force").returncode == 0
    assert skill.read_text() != "of my own"
    assert add("--claude", "--force").returncode == 0


def test_a_directory_in_the_place_of_a_link_is_not_lost_unasked(add: Any, tmp_path: Path) -> None:
    own = tmp_path / "project" / ".claude" / "skills" / NAME
    own.mkdir(parents=True)
    (own / "SKILL.md").write_text("of my own")
    assert add("--claude").returncode == 1
    assert (own / "SKILL.md").read_text() == "of my own"
    assert not (tmp_path / "project" / ".agents").exists()
    assert add("--claude", "--force").returncode == 0
    assert own.is_symlink()


def test_a_link_that_leads_nowhere_counts_as_there(add: Any, tmp_path: Path) -> None:
    place = tmp_path / "project" / ".claude" / "skills" / NAME
    place.parent.mkdir(parents=True)
    place.symlink_to("gone")
    assert add("--claude").returncode == 1


def test_a_place_that_cannot_be_written_to_is_named(add: Any, tmp_path: Path) -> None:
    (tmp_path / "project" / ".agents").write_text("a file")
    done = add()
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ") and "cannot be written: Not a directory" in done.stderr
