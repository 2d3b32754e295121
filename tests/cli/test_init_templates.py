"""The templates of `openenv init`, and what it makes of Gymnasium and of a class."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from cli.generated import NEWEST, check_clean, check_generated, check_typed
from support.amounts import mostly_extended
from support.commands import SOURCES, openenv_running, run_openenv

from openenv.cli._template import TEMPLATES, EnvironmentNames, render, write_tree
from openenv.spaces import space_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

WRITTEN = [name for name in TEMPLATES if name != "package"]
OTHER_CLASSES = pytest.mark.extended("other classes become packages alike")
ACTIONS: dict[str, dict[str, Any]] = {
    "gym": {"message": "hello"},
    "mcp": {"tool_name": "list_notes", "arguments": {}},
    "text-game": {"text": "take 1"},
    "coding": {"code": "x = 1", "submit": True},
}
ODD = '''
import gymnasium
import numpy as np
from gymnasium import spaces


class Odd(gymnasium.Env):
    """Odd spaces."""

    def __init__(self):
        self.action_space = spaces.Dict(
            {
                "speed": spaces.Box(-1, 1, (2,), np.float64),
                "gear": spaces.Discrete(5, start=-1),
                "say": spaces.Text(5),
                "flags": spaces.MultiBinary(3),
                "pick": spaces.MultiDiscrete([3, 4]),
            }
        )
        pose = spaces.Dict({"x": spaces.Box(-2.0, 2.0, ()), "k": spaces.Discrete(3)})
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
                "pose": pose,
                "seen": spaces.Sequence(spaces.Discrete(4)),
                "pair": spaces.Tuple([spaces.Discrete(2), spaces.Box(0.0, 1.0, (2,))]),
            }
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.n += 1
        return self.observation_space.sample(), 0.5, self.n > 9, False, {"n": self.n}


class Linked(Odd):
    def __init__(self):
        super().__init__()
        inner = spaces.Tuple([spaces.Graph(spaces.Discrete(2), None)])
        self.observation_space = spaces.Dict({"places": inner})


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, by: int) -> int:
        """Add to it."""
        self.n += by
        return self.n

    def total(self) -> int:
        """The sum."""
        return self.n


class Needy:
    def __init__(self, what: str) -> None:
        self.what = what

    def tell(self) -> str:
        return self.what
'''


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of each template, by its name; not to be changed."""
    folder = tmp_path_factory.mktemp("templates")
    for template in WRITTEN:
        name = tree_of(template, folder).name
        done = run_openenv("init", name, "-t", template, "--no-lock", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def tree_of(template: str, trees: Path) -> Path:
    return trees / f"new_{template.replace('-', '_')}_env"  # which no installed one is called


# ------------------------------------------------------------------ each template


@pytest.mark.parametrize("template", mostly_extended(WRITTEN, []))
def test_what_it_writes_passes_every_check(template: str, trees: Path) -> None:
    check_generated(tree_of(template, trees), "semantic")


@pytest.mark.extended("mypy checks each template as each Python has its types")
@pytest.mark.parametrize("template", WRITTEN)
def test_what_it_writes_is_typed_as_the_newest_python_has_it(template: str, trees: Path) -> None:
    check_typed(tree_of(template, trees), NEWEST)


@pytest.mark.parametrize("template", WRITTEN)
@pytest.mark.parametrize("name", ["a", "my_game_env", "a_rather_long_name_for_one_env"])
def test_it_is_laid_out_under_any_name(template: str, name: str, tmp_path: Path) -> None:
    write_tree(render(EnvironmentNames.of(name), TEMPLATES[template]), tmp_path / name)
    check_clean(tmp_path / name)


@pytest.mark.extended("starts commands for each template")
@pytest.mark.parametrize("template", WRITTEN)
def test_it_is_served_and_played_by_its_own_client(
    template: str, trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(template, trees)
    monkeypatch.syspath_prepend(str(trees))
    package: Any = importlib.import_module(tree.name)
    prefix = EnvironmentNames.of(tree.name).class_prefix
    arguments = ("serve", tree.name, "--port=0", "--json")
    with (
        openenv_running(*arguments, cwd=trees, log=tmp_path / "log") as server,
        getattr(package, f"{prefix}Env")(base_url=server.first_line()["url"]) as env,
    ):
        env.reset(seed=0)
        result = env.step(getattr(package, f"{prefix}Action")(**ACTIONS[template]))
        assert result.reward is not None
        assert env.state().step_count == 1


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13", "3.14"])
def test_another_python_compiles_it(version: str, trees: Path, tmp_path: Path) -> None:
    pythons = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = str(pythons[0]) if pythons else shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"there is no Python {version}")
    copy = shutil.copytree(trees, tmp_path / "copy")
    done = subprocess.run(
        [found, "-W", "error", "-m", "compileall", "-q", "."],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_templates_are_listed(tmp_path: Path) -> None:
    done = run_openenv("init", "--list-templates", cwd=tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(TEMPLATES)
    told = json.loads(run_openenv("init", "--list-templates", "--json", cwd=tmp_path).stdout)
    assert set(told["templates"]) == set(TEMPLATES)


def test_where_no_index_can_be_reached_a_warning_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    done = run_openenv("init", "my_env", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: no uv.lock was written" in done.stderr
    assert "uv.lock" not in json.loads(done.stdout)["files"]
    assert (tmp_path / "my_env" / "README.md").exists()


# ------------------------------------------------------------------ Gymnasium


@pytest.mark.extended("checks a generated package: ruff, mypy, its tests, validate")
@pytest.mark.parametrize(
    "env_id",
    [
        "Blackjack-v1",
        "Pendulum-v1",
        pytest.param("CartPole-v1", marks=OTHER_CLASSES),
        pytest.param("Taxi-v4", marks=OTHER_CLASSES),
    ],
)
def test_an_environment_of_gymnasium_becomes_a_package(env_id: str, tmp_path: Path) -> None:
    name = f"{env_id.partition('-')[0].lower()}_env"
    done = run_openenv("init", name, "--from-gymnasium", env_id, "--no-lock", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check_generated(tmp_path / name)


def test_the_models_have_the_spaces_of_gymnasium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_openenv("init", "pole_env", "--from-gymnasium", "CartPole-v1", "--no-lock", cwd=tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    package: Any = importlib.import_module("pole_env")
    with contextlib.closing(gymnasium.make("CartPole-v1")) as env:
        seen = package.PoleObservation.model_json_schema()["properties"]["observation"]
        assert space_of(seen) == env.observation_space
        assert "0 Cart Position" in seen["description"]
        does = package.PoleAction.model_json_schema()["properties"]["action"]
        assert (does["minimum"], does["maximum"]) == (0, 1)
        assert does["names"] == ["Push cart to the left", "Push cart to the right"]
    readme = (tmp_path / "pole_env" / "README.md").read_text()
    assert "| action | `action` | Discrete(2) | 0 to 1 | 0 Push cart to the left;" in readme
    assert "CartPole-v1" in readme


def test_an_id_that_there_is_not_is_answered_by_the_closest(tmp_path: Path) -> None:
    done = run_openenv("init", "my_env", "--from-gymnasium", "CartPol-v1", cwd=tmp_path)
    assert done.returncode == 2
    assert "hint: did you mean CartPole-v1" in done.stderr
    assert not any(tmp_path.iterdir())


def test_without_gymnasium_the_command_that_installs_it_is_said(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['gymnasium'] = None; from openenv.cli.__main__ import main; "
    arguments = "sys.argv = ['openenv', 'init', 'my_env', '--from-gymnasium', 'CartPole-v1']; "
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}{arguments}main()"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SOURCES), "PATH": ""},
    )
    assert done.returncode == 1
    assert "hint: pip install gymnasium" in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ a class


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A directory with the module that is wrapped."""
    (tmp_path / "odd_package.py").write_text(ODD)
    return tmp_path


def wrapped(what: str, odd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openenv.cli", "init", "mine_env", "--no-lock"]
    return subprocess.run(
        [*command, "--wraps", what],
        cwd=odd,
        env={"PYTHONPATH": f"{SOURCES}:{odd}", "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.extended("checks a generated package: ruff, mypy, its tests, validate")
def test_the_methods_of_a_class_become_tools(odd: Path) -> None:
    done = wrapped("odd_package:Counter", odd)
    assert done.returncode == 0, done.stderr
    check_generated(odd / "mine_env", "runtime", odd)


@pytest.mark.extended("checks a generated package: ruff, mypy, its tests, validate")
def test_a_class_of_gymnasium_with_all_kinds_of_spaces_gets_their_models(odd: Path) -> None:
    done = wrapped("odd_package:Odd", odd)
    assert done.returncode == 0, done.stderr
    models = (odd / "mine_env" / "models.py").read_text()
    assert "class MineObservationPoseDict(TypedDict):" in models
    check_generated(odd / "mine_env", "runtime", odd)


@pytest.mark.extended("starts commands for each template")
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("odd_package:Linked", "observation.places[0] is a Graph"),
        ("odd_package:Countr", "did you mean Counter?"),
        ("odd_package:Needy", "cannot be made without what"),
        ("nowhere_to_be:Found", "cannot be imported"),
        ("odd_package", "names no class"),
    ],
)
def test_what_cannot_be_wrapped_says_why(what: str, words: str, odd: Path) -> None:
    done = wrapped(what, odd)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (odd / "mine_env").exists()


# ------------------------------------------------------------------ misuse


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("my_env", "-t", "mpc"), "hint: did you mean mcp?"),
        (("my_env", "-t", "package"), "hint: add --wraps MODULE:CLASS"),
        (
            ("my_env", "-t", "mcp", "--wraps", "a:B"),
            "--wraps cannot be combined with the template mcp",
        ),
        (("my_env", "-t", "gym", "--from-gymnasium", "X"), "exclude each other"),
        ((), "Missing argument 'NAME'"),
    ],
)
def test_a_misuse_is_refused_with_its_cure(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = run_openenv("init", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert not any(tmp_path.iterdir())
