"""Servers by `uv run`, in environments that uv builds for them. Those marked slow need an index."""

from __future__ import annotations

import shutil
import socket
import subprocess
import traceback
from pathlib import Path

import pytest

from openenv import GenericEnvClient
from openenv.errors import ProviderError, ProviderExited
from openenv.providers import UVProvider

REPOSITORY = Path(__file__).parents[2]

PYPROJECT = f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tiny"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["openenv @ {REPOSITORY.as_uri()}"]

[tool.hatch]
metadata.allow-direct-references = true
build.dev-mode-dirs = [".."]
build.targets.wheel.only-include = ["__init__.py", "models.py", "server"]
build.targets.wheel.sources = {{ "" = "tiny_env" }}
"""

MODELS = """
from openenv import Action

class Double(Action):
    number: int
"""

APP = """
import os
from openenv import Environment, Observation, State, create_app
from ..models import Double

class Tiny(Environment[Double, Observation, State]):
    def reset(self): return Observation()
    def step(self, action):
        return Observation(reward=2 * action.number, metadata={"it": os.environ.get("IT")})
    @property
    def state(self): return State()

app = create_app(Tiny)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH: it is empty."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package that is its own directory, as `openenv init` makes them."""
    directory = tmp_path / "tiny_env"
    (directory / "server").mkdir(parents=True)
    (directory / "pyproject.toml").write_text(PYPROJECT)
    (directory / "openenv.yaml").write_text("name: tiny_env\n")
    (directory / "__init__.py").write_text("")
    (directory / "models.py").write_text(MODELS)
    (directory / "server" / "__init__.py").write_text("")
    (directory / "server" / "app.py").write_text(APP)
    return directory


def git(directory: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def play(provider: UVProvider) -> None:
    with GenericEnvClient.with_provider(provider) as env:
        env.reset()
        result = env.step({"number": 21})
        assert result.reward == 42
        assert result.metadata == {"it": "arrives"}
    assert provider.pid is None


@pytest.mark.extended("installs a project")
@pytest.mark.slow("installs a project")
@pytest.mark.usefixtures("uv")
def test_a_project_is_served_with_its_own_dependencies(project: Path) -> None:
    play(UVProvider(project_path=str(project), env_vars={"IT": "arrives"}))


@pytest.mark.extended("installs a project")
@pytest.mark.slow("installs a project")
@pytest.mark.usefixtures("uv")
def test_a_commit_of_a_repository_is_cloned_and_served(project: Path) -> None:
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "one")
    commit = git(project, "rev-parse", "HEAD")
    (project / "server" / "app.py").write_text("raise RuntimeError('a later commit')\n")
    git(project, "commit", "--quiet", "-a", "-m", "two")
    source = f"git+{project.as_uri()}@{commit}"
    play(UVProvider(project_path=source, env_vars={"IT": "arrives"}))


@pytest.mark.slow
@pytest.mark.usefixtures("uv")
def test_an_application_that_raises_shows_its_traceback(project: Path) -> None:
    (project / "server" / "app.py").write_text("raise RuntimeError('no display')\n")
    provider = UVProvider(project_path=str(project))
    with pytest.raises(ProviderExited, match="no display"):
        GenericEnvClient.with_provider(provider).connect()


@pytest.mark.usefixtures("path")
def test_without_uv_it_says_how_to_install_it(project: Path) -> None:
    with pytest.raises(ProviderError, match="pip install uv"):
        UVProvider(project_path=str(project)).start()


@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("ref", ["", "@no-such-branch"])
def test_a_clone_that_fails_says_what_git_said(tmp_path: Path, ref: str) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    source = f"git+{(tmp_path / 'empty').as_uri()}{ref}"
    provider = UVProvider(project_path=source)
    with pytest.raises(ProviderError, match=r"could not be cloned: fatal: .*remote ref"):
        provider.start()
    assert provider.pid is None
    provider.stop()


@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("user", ["me:planted-password", "planted-token-of-a-hub"])
def test_what_lets_into_a_repository_is_not_shown_where_it_cannot_be_cloned(user: str) -> None:
    provider = UVProvider(project_path=f"git+https://{user}@127.0.0.1:1/a/b")
    with pytest.raises(ProviderError, match="could not be cloned") as caught:
        provider.start()
    assert "planted" not in "".join(traceback.format_exception(caught.value))


def test_without_git_it_says_so(path: Path, project: Path) -> None:
    (path / "uv").symlink_to(shutil.which("true", path="/usr/bin:/bin") or "/bin/true")
    with pytest.raises(ProviderError, match=r"could not be cloned: .*git"):
        UVProvider(project_path=f"git+{project.as_uri()}").start()


@pytest.mark.usefixtures("uv")
def test_a_directory_that_is_no_project_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match=r"no pyproject\.toml"):
        UVProvider(project_path=str(tmp_path)).start()


@pytest.mark.usefixtures("uv")
def test_a_port_that_is_busy_is_named(project: Path) -> None:
    """Whatever listens there might answer /health in the server's place."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProviderError, match=f"port {port}"):
            UVProvider(project_path=str(project)).start(port=port)


@pytest.mark.usefixtures("uv")
def test_an_option_that_nobody_takes_is_refused(project: Path) -> None:
    with pytest.raises(TypeError, match="memory"):
        UVProvider(project_path=str(project)).start(memory="4g")
