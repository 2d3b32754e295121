"""`openenv import`: sources as their libraries document them, and what becomes of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from cli.generated import check_generated
from support.commands import SOURCES, environ, run_openenv
from support.venvs import python_of

from openenv.cli._vendor import read_source

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HERE = Path(__file__).parent
OTHER_KINDS = pytest.mark.extended("checks a generated package: ruff, mypy, its tests, validate")
ORS = HERE.parent / "wrappers" / "ors_server.py"
OPENREWARD = "openreward==0.1.167"

WALK = '''
import numpy as np
from gymnasium import spaces
from games.base import Base

print("somebody runs the source")


class Walk(Base):
    """Walk to the right."""

    def __init__(self):
        self.action_space = spaces.Box(low=-1.0, high=1.0, shape=(2,), dtype=np.float32)
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.zeros(2, np.float32)
        return self.at, {}

    def step(self, action):
        self.at = np.clip(self.at + action, -100, 100)
        return self.at, float(action[0]), bool(self.at[0] > 5), False, {}
'''
TURNS = '''
from gymnasium.spaces import Discrete
from pettingzoo import ParallelEnv


class Both(ParallelEnv):
    """Two say a number."""

    metadata = {"name": "both_v0", "render_modes": []}
    possible_agents = ["left", "right"]
    render_mode = None
    spaces = {"left": Discrete(3), "right": Discrete(3)}

    def observation_space(self, agent):
        return self.spaces[agent]

    def action_space(self, agent):
        return self.spaces[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.n = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), {one: {} for one in self.agents}

    def step(self, actions):
        self.n += 1
        agents, is_over = self.agents, self.n > 3
        if is_over:
            self.agents = []
        never = dict.fromkeys(agents, False)
        ends = dict.fromkeys(agents, is_over)
        infos = {one: {} for one in agents}
        return dict.fromkeys(agents, 1), dict.fromkeys(agents, 1.0), ends, never, infos
'''
STEPS = '''
import dm_env
from dm_env import specs


class Count(dm_env.Environment):
    """Count to three."""

    def __init__(self, seed=None):
        self.seed = seed

    def reset(self):
        self.n = 0
        return dm_env.restart(self.n)

    def step(self, action):
        self.n += 1
        end = dm_env.termination if self.n >= 3 else dm_env.transition
        return end(reward=1.0, observation=self.n)

    def observation_spec(self):
        return specs.DiscreteArray(4)

    def action_spec(self):
        return specs.DiscreteArray(2)
'''
DESK = '''
"""A desk of tools."""
from fastmcp import FastMCP

server = FastMCP("desk")


@server.tool
def count(text: str, by: int = 1) -> int:
    """Count the words."""
    return len(text.split()) * by


@server.tool()
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()
'''


def project(folder: Path, name: str, **files: str) -> Path:
    """A directory of sources; ``__`` in a name stands for a slash."""
    for path, text in files.items():
        file = folder / name / f"{path.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / name


def imported(source: str, name: str, where: Path, *more: str) -> Path:
    done = run_openenv("import", source, "-n", name, "-o", ".", "--no-lock", *more, cwd=where)
    assert done.returncode == 0, done.stderr
    assert "somebody runs the source" not in done.stdout + done.stderr
    return where / name


# ------------------------------------------------------------------ what it writes


def walking(folder: Path) -> Path:
    base = (
        "import gymnasium as gym\n\n\nclass Base(gym.Env):\n    metadata = {'render_modes': []}\n"
    )
    made = project(folder, "walking", games__init="", games__base=base, games__walk=WALK)
    (made / "games" / "init.py").rename(made / "games" / "__init__.py")
    (made / "LICENSE").write_text("MIT License\n")
    (made / ".env").write_text("TOKEN=secret\n")
    about = '[project]\nname = "games"\nversion = "1"\ndependencies = ["gymnasium>=1.0"]\n'
    (made / "pyproject.toml").write_text(about)
    return made


@pytest.mark.extended("checks a generated package: ruff, mypy, its tests, validate")
def test_a_project_of_gymnasium_becomes_a_package_with_its_source(tmp_path: Path) -> None:
    walking(tmp_path)
    package = imported("walking", "walk_env", tmp_path)
    assert (package / "vendor/walking/LICENSE").read_text() == "MIT License\n"
    assert (package / "vendor/walking/games/walk.py").read_text() == WALK
    assert not list(package.rglob(".env"))
    readme = (package / "README.md").read_text()
    assert "`Walk` of Gymnasium" in readme
    assert "walking/games/walk.py:" in readme
    assert "`walking/LICENSE`" in readme
    assert '"gymnasium>=1.0"' in (package / "pyproject.toml").read_text()
    plan = json.loads((package / "validation" / "runtime.json").read_text())
    assert plan["actions"][0] == {"action": [0.0, 0.0]}
    check_generated(package)


@pytest.mark.extended("test_init_templates.py checks a generated package")
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (TURNS, "pettingzoo"),
        pytest.param(STEPS, "dm_env", marks=OTHER_KINDS),
        pytest.param(DESK, "mcp", marks=OTHER_KINDS),
    ],
)
def test_a_file_becomes_a_package(source: str, kind: str, tmp_path: Path) -> None:
    project(tmp_path, "sources", mine=source)
    package = imported("sources/mine.py", "mine_env", tmp_path)
    assert yaml.safe_load((package / "openenv.yaml").read_text())["validation"]["types"] == {
        "tags": [kind]
    }
    check_generated(package)


def test_a_package_that_is_installed_is_found_by_its_name(tmp_path: Path) -> None:
    done = run_openenv(
        "import", "dm-env", "-n", "theirs_env", "-o", ".", "--no-lock", "--json", cwd=tmp_path
    )
    assert done.returncode == 2  # its examples, in catch.py and elsewhere
    assert "dm_env" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.packages
@pytest.mark.timeout(300)
def test_an_environment_of_ors_is_played_where_openreward_is(tmp_path: Path) -> None:
    folder = project(tmp_path, "sums", sums=ORS.read_text())
    package = imported(str(folder), "sums_env", tmp_path, "--env-class", "sums:Sums")
    ours = ["-e", str(SOURCES.parent), "httpx", "pytest"]
    python = python_of(SOURCES.parent / ".peers" / "openreward-import", OPENREWARD, *ours)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=package,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_taskset_of_verifiers_is_recognized(tmp_path: Path) -> None:
    source = (HERE.parent / "wrappers" / "sums_taskset.py").read_text()
    project(tmp_path, "sums", sums_taskset=source)
    package = imported("sums", "asked_env", tmp_path)
    environment = (package / "server" / "asked_env_environment.py").read_text()
    assert 'from_verifiers(vendored("sums_taskset").__name__)' in environment
    assert '"verifiers>=0.4"' in (package / "pyproject.toml").read_text()


def test_what_was_written_is_told_in_json(tmp_path: Path) -> None:
    project(tmp_path, "sources", mine=DESK)
    done = run_openenv(
        *("import", "sources", "-n", "mine_env", "-o", "out", "--no-lock", "--json"), cwd=tmp_path
    )
    told = json.loads(done.stdout)
    assert told["path"] == str((tmp_path / "out" / "mine_env").resolve())
    assert "vendor/sources/mine.py" in told["files"]


# ------------------------------------------------------------------ what it refuses


def refused(where: Path, *arguments: str) -> str:
    done = run_openenv("import", *arguments, cwd=where)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_two_environments_are_named_with_the_option_that_chooses(tmp_path: Path) -> None:
    project(tmp_path, "two", one=STEPS, other=STEPS.replace("Count", "Tally"))
    words = refused(tmp_path, "two", "-n", "two_env", "-o", ".")
    assert "one:Count (dm_env), other:Tally (dm_env)" in words
    assert "hint: say which: --env-class one:Count" in words
    assert not (tmp_path / "two_env").exists()
    imported("two", "two_env", tmp_path, "--env-class", "Tally")


def test_a_class_that_is_not_there_is_answered_by_the_closest(tmp_path: Path) -> None:
    project(tmp_path, "one", one=STEPS)
    words = refused(tmp_path, "one", "-n", "one_env", "-o", ".", "--env-class", "Cuont")
    assert "hint: did you mean Count?" in words


def test_a_type_that_is_not_there_names_what_is(tmp_path: Path) -> None:
    project(tmp_path, "one", one=STEPS)
    words = refused(tmp_path, "one", "-n", "one_env", "-o", ".", "--type", "gymnasium")
    assert "one:Count (dm_env)" in words
    assert "did you mean verifiers?" in refused(
        tmp_path, "one", "-n", "one_env", "-o", ".", "--type", "verifier"
    )


def test_a_source_without_environments_says_what_was_looked_for(tmp_path: Path) -> None:
    project(tmp_path, "none", plain="class Env:\n    def step(self): ...\n", broken="def")
    words = refused(tmp_path, "none", "-n", "none_env", "-o", ".")
    assert "gymnasium.Env" in words
    assert "openenv init NAME --wraps" in words


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "neither a directory, a file nor an installed package" in refused(
        tmp_path, "nowhere", "-n", "my_env", "-o", "."
    )


def test_a_name_that_is_none_is_refused_as_by_init(tmp_path: Path) -> None:
    words = refused(tmp_path, ".", "-n", "my-env", "-o", ".")
    assert "openenv import SOURCE -n my_env" in words


def test_a_source_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    folder = project(tmp_path, "one", one=STEPS)
    (folder / "one.py").chmod(0)
    done = run_openenv("import", "one", "-n", "one_env", "-o", ".", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ what it must not do


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "games.py").write_text("x = 1\n")
    os.mkfifo(tmp_path / "games" / "levels.py")
    source = read_source(str(tmp_path / "games"))
    assert list(source.files) == ["games/games.py"]
    assert source.skipped == ["levels.py: no regular file"]


def test_nothing_of_what_it_depends_on_is_run_and_no_link_is_followed(tmp_path: Path) -> None:
    """It locks, which may build what there are only sources of."""
    mark, secret = tmp_path / "mark", tmp_path / "secret.txt"
    secret.write_text("a secret of the user's")
    walk = WALK.replace("from games.base import Base", "from gymnasium import Env as Base")
    package = project(tmp_path / "repo", "hostile", walk=walk)
    (package / "__init__.py").touch()
    dependency = package / "dependency"
    dependency.mkdir()
    (dependency / "setup.py").write_text(
        f"open({str(mark)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='evil')\n"
    )
    (package / "pyproject.toml").write_text(
        "[project]\nname = 'hostile'\nversion = '1'\n"
        f"dependencies = ['gymnasium', 'evil @ file://{dependency}']\n"
    )
    for folder in (package, package.parent):
        (folder / "LICENSE").symlink_to(secret)
    done = run_openenv("import", str(package), "-n", "mine_env", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not mark.exists() and "it is a file of this machine" in done.stderr
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files and not any(b"a secret" in path.read_bytes() for path in files)
