from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import ENVIRONMENTS, environ, openenv_running, run_openenv

import openenv
from openenv.cli._openenv import Origin, origin_for
from openenv.cli._template import OPENENV, EnvironmentNames, minimum_version, render, write_tree
from openenv.testing import check_environment
from openenv.testing.environment import RENDER_ONLY_SHOWS, SNAPSHOT_RESTORES

pytestmark = pytest.mark.slow  # most start servers in processes of their own

WHEEL = f"wheels/openenv-{openenv.__version__}-py3-none-any.whl"

PROMISED = {
    ".dockerignore",
    ".gitignore",
    "README.md",
    "__init__.py",
    "client.py",
    "models.py",
    "openenv.yaml",
    "outputs/evals/.gitkeep",
    "outputs/logs/.gitkeep",
    "py.typed",
    "pyproject.toml",
    "server/Dockerfile",
    "server/__init__.py",
    "server/app.py",
    "server/my_game_env_environment.py",
    "server/requirements.txt",
    "tests/__init__.py",
    "tests/test_my_game_env.py",
    "validation/oracle.py",
    "validation/runtime.json",
    WHEEL,  # of a version that is not released
}


def files_under(directory: Path) -> set[str]:
    left_by_tools = ("__pycache__", "cache", ".egg-info")
    return {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and not any(word in str(path) for word in left_by_tools)
    }


# ------------------------------------------------------------------ what it writes


def test_it_writes_the_whole_tree_and_says_so_in_json(tmp_path: Path) -> None:
    done = run_openenv(
        "init", "my_game_env", "-o", "deep/down", "--no-lock", "--json", cwd=tmp_path
    )
    assert done.returncode == 0
    assert "Environment initialized" in done.stderr
    told = json.loads(done.stdout)
    assert told["name"] == "my_game_env"
    assert set(told["files"]) == PROMISED
    written = Path(told["path"])
    assert written == tmp_path.resolve() / "deep" / "down" / "my_game_env"
    assert files_under(tmp_path) == {f"deep/down/my_game_env/{path}" for path in PROMISED}
    for path in PROMISED - {WHEEL}:
        assert not re.search("__ENV|tmpl", path + (written / path).read_text(encoding="utf-8"))


def test_what_it_writes_passes_its_own_tests(my_game_env: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=my_game_env,
        env=environ(my_game_env.parent),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_what_it_writes_keeps_the_contract(
    my_game_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = imported("my_game_env", my_game_env.parent, monkeypatch)
    server = importlib.import_module("my_game_env.server.my_game_env_environment")
    report = check_environment(
        server.MyGameEnvironment, actions=[package.MyGameAction(message="hello")], max_steps=200
    )
    left_out = [f.promise for f in report.findings if f.kept is None]
    assert left_out == [SNAPSHOT_RESTORES, RENDER_ONLY_SHOWS]
    assert server.MyGameEnvironment.SUPPORTS_CONCURRENT_SESSIONS is True


def test_what_it_writes_is_served_and_played(
    my_game_env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = imported("my_game_env", my_game_env.parent, monkeypatch)
    arguments = ("serve", "my_game_env", "--port=0", "--json")
    with openenv_running(*arguments, cwd=my_game_env.parent, log=tmp_path / "log") as server:
        url = server.first_line()["url"]
        with package.MyGameEnv(base_url=url) as one, package.MyGameEnv(base_url=url) as other:
            assert one.reset(seed=0).observation.echoed_message == "My Game environment ready!"
            other.reset()
            result = one.step(package.MyGameAction(message="hi"))
            assert (result.observation.echoed_message, result.reward) == ("hi", 0.2)
            assert (one.state().step_count, other.state().step_count) == (1, 0)
        assert "from my_game_env import MyGameEnv" in server.words()


def imported(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(directory))
    return importlib.import_module(name)


@pytest.mark.parametrize(
    "arguments", [("check", "--extend-select=I,E501,UP,B,RUF"), ("format", "--check")]
)
def test_what_it_writes_is_clean(arguments: tuple[str, ...], my_game_env: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."],
        cwd=my_game_env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_its_manifests_hold_the_names(my_game_env: Path) -> None:
    manifest = yaml.safe_load((my_game_env / "openenv.yaml").read_text())
    assert manifest["name"] == "my_game_env"
    assert manifest["app"] == "server.app:app"
    assert (manifest["action"], manifest["observation"]) == ("MyGameAction", "MyGameObservation")
    project = (my_game_env / "pyproject.toml").read_text()
    assert 'name = "openenv-my-game-env"' in project
    assert 'server = "my_game_env.server.app:main"' in project
    assert "my-game-env:latest" in (my_game_env / "server" / "Dockerfile").read_text()
    assert front_matter(my_game_env / "README.md")["title"] == "My Game"


# ------------------------------------------------------------------ which OpenEnv it asks for


def test_a_version_that_is_not_released_comes_with_its_wheel(my_game_env: Path) -> None:
    """An index has another package of this name and a lower version."""
    project = (my_game_env / "pyproject.toml").read_text()
    assert f'dependencies = ["openenv>={openenv.__version__}"]' in project
    assert f'[tool.uv.sources]\nopenenv = {{ path = "{WHEEL}" }}\n' in project
    requirements = (my_game_env / "server" / "requirements.txt").read_text()
    assert requirements.splitlines()[0] == "--find-links ../wheels"
    with zipfile.ZipFile(my_game_env / WHEEL) as archive:
        assert "openenv/client/client.py" in archive.namelist()


def test_one_inside_a_checkout_takes_it_from_there() -> None:
    origin = origin_for(ENVIRONMENTS / "new_env")
    assert not origin.files
    assert 'openenv = { path = "../..", editable = true }' in origin.fills["OPENENV_SOURCE"]
    assert str(ENVIRONMENTS.parent) in origin.words


def test_a_released_version_needs_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv.images.running.is_released", lambda: True)
    assert origin_for(tmp_path) == Origin({}, {}, "")
    assert minimum_version("0.11.0") == minimum_version("0.11.0+local") == ">=0.11.0"


# ------------------------------------------------------------------ what it refuses


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("my-env", "my_env"),
        ("My Env", "my_env"),
        ("3d_env", "env_3d_env"),
        ("été", "t"),
        ("___", "my_env"),
        ("../up", "up"),
        ("class", "class_env"),
        ("json", "json_env"),
        ("openenv", "openenv_env"),
        ("yaml", "yaml_env"),
    ],
)
def test_a_name_that_is_none_is_refused_with_a_better_one(
    name: str, proposal: str, tmp_path: Path
) -> None:
    done = run_openenv("init", name, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert f"openenv init {proposal}" in done.stderr.splitlines()[-1]
    assert not any(tmp_path.iterdir())


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "my_env").mkdir()
    (tmp_path / "my_env" / "precious.txt").write_text("mine")
    done = run_openenv("init", "my_env", cwd=tmp_path)
    assert done.returncode == 2
    assert "hint: " in done.stderr
    assert files_under(tmp_path) == {"my_env/precious.txt"}


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    (tmp_path / "my_env").mkdir()
    assert run_openenv("init", "my_env", "--no-lock", cwd=tmp_path).returncode == 0
    assert (tmp_path / "my_env" / "openenv.yaml").exists()


def test_a_place_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_openenv("init", "my_env", "-o", "file/below", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert files_under(tmp_path) == {"file"}


def test_a_failure_halfway_leaves_nothing_behind(tmp_path: Path) -> None:
    impossible = {"README.md": "written", "README.md/below": "a file below a file"}
    with pytest.raises(OSError):
        write_tree(impossible, tmp_path / "my_env")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "prefix", "title", "image"),
    [
        ("echo_env", "Echo", "Echo", "echo-env"),
        ("my_game", "MyGame", "My Game", "my-game"),
        ("env", "Env", "Env", "env"),
        ("_2048_env", "Env2048", "2048", "2048-env"),
        ("MyEnv", "MyEnv", "MyEnv", "myenv"),
        ("odd__name_", "OddName", "Odd Name", "odd-name"),
        ("a_env_env", "AEnv", "A Env", "a-env-env"),
    ],
)
def test_every_name_gives_names_that_are_legal(
    name: str, prefix: str, title: str, image: str
) -> None:
    assert EnvironmentNames.of(name) == EnvironmentNames(name, prefix, title, image)
    for path, text in render(EnvironmentNames.of(name)).items():
        if path.endswith(".py"):
            ast.parse(text)


# ------------------------------------------------------------------ the template is echo_env

ECHO = ENVIRONMENTS / "echo_env"
SPECIAL_TO_ECHO = {
    "README.md",
    "openenv.yaml",
    "__init__.py",
    "client.py",
    "models.py",
    "server/app.py",
    "server/echo_environment.py",
    "tests/test_echo_env.py",
}


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    """The template filled in, under the name that the public package gives its module."""
    tree = render(EnvironmentNames.of("echo_env"))
    return {
        path.replace("echo_env_environment", "echo_environment"): text.replace(
            "echo_env_environment", "echo_environment"
        )
        for path, text in tree.items()
        if not path.startswith("outputs/")
    }


def test_the_template_and_echo_env_have_the_same_files(rendered: dict[str, str]) -> None:
    assert files_under(ECHO) == set(rendered) | {"badge.svg"}  # which tells of echo_env alone


def test_what_is_general_is_the_same_in_the_template_and_in_echo_env(
    rendered: dict[str, str],
) -> None:
    for path in sorted(set(rendered) - SPECIAL_TO_ECHO):
        general = rendered[path]
        ours = (ECHO / path).read_text(encoding="utf-8")
        ours = ours.replace(f"openenv>={openenv.__version__}", OPENENV)
        if path == "pyproject.toml":
            # Those of tools would stand before this repository's; a licence is the author's choice.
            general = general.partition("\n[tool.ruff]")[0]
            ours = ours.replace('license = "BSD-3-Clause"\n', "")
        assert ours == general, path


def test_the_manifests_differ_in_the_tools_that_echo_env_has(rendered: dict[str, str]) -> None:
    ours = (ECHO / "openenv.yaml").read_text(encoding="utf-8")
    without_tools = re.sub(r" *declared_tools: .*\n", "", ours)
    assert without_tools != ours
    assert without_tools == rendered["openenv.yaml"]


def test_the_apps_differ_in_the_models_they_name_only(rendered: dict[str, str]) -> None:
    def without_models(source: str) -> str:
        source = re.sub(r"from \.\.models import .*", "", source)
        return re.sub(r"(?s)EchoEnvironment,\n.*?    env_name", "env_name", source)

    app = (ECHO / "server" / "app.py").read_text(encoding="utf-8")
    assert without_models(app) == without_models(rendered["server/app.py"])


def test_both_import_their_own_package_relatively(rendered: dict[str, str]) -> None:
    for path in rendered:
        if path.endswith(".py"):
            theirs = own_imports((ECHO / path).read_text(encoding="utf-8"))
            assert own_imports(rendered[path]) == theirs == relative_imports(rendered[path]), path


def own_imports(source: str) -> set[str]:
    """The modules of its own package that a module imports, in whichever way."""
    absolute = set(re.findall(r"^\s*(?:from|import) (echo_env\S*)", source, re.M))
    return absolute | relative_imports(source)


def relative_imports(source: str) -> set[str]:
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return {"." * node.level + (node.module or "") for node in nodes if node.level}


def test_both_define_and_export_the_same_kinds_of_things(rendered: dict[str, str]) -> None:
    for path in ("client.py", "models.py", "server/echo_environment.py"):
        ours = classes((ECHO / path).read_text(encoding="utf-8"))
        assert classes(rendered[path]) <= ours, path


def classes(source: str) -> set[str]:
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def test_both_readmes_are_pages_of_a_space(rendered: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(rendered["README.md"], encoding="utf-8")
    ours, theirs = front_matter(ECHO / "README.md"), front_matter(tmp_path / "README.md")
    to_taste = {"emoji", "colorFrom", "colorTo"}
    assert set(ours) == set(theirs)
    assert {k: v for k, v in ours.items() if k not in to_taste} == {
        k: v for k, v in theirs.items() if k not in to_taste
    }


def front_matter(readme: Path) -> dict[str, Any]:
    _, matter, _ = readme.read_text(encoding="utf-8").split("---\n", 2)
    parsed: dict[str, Any] = yaml.safe_load(matter)
    return parsed
