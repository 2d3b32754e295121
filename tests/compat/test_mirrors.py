"""Old import paths: they import, they are the same objects, and they cost no more."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.amounts import mostly_extended

ROOT = Path(__file__).resolve().parents[2]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mirrors", ROOT / "scripts" / "mirrors.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mirrors"] = module
    spec.loader.exec_module(module)
    return module


script: Any = load_script()
MIRRORS: dict[str, Any] = script.read_mirrors()
NAMES = [(mirror, name) for mirror in MIRRORS.values() for name in mirror.names]
LEAVES = [mirror.module for mirror in MIRRORS.values() if not mirror.is_package]
# Those that old clients and servers import first.
SHOWN = ["openenv.core.env_client", "openenv.core.env_server.http_server"]
PACKAGES = [mirror.module for mirror in MIRRORS.values() if mirror.is_package]


# ------------------------------------------------------------------ the same objects


@pytest.mark.parametrize(
    ("mirror", "name"), NAMES, ids=[f"{mirror.module}.{name.alias}" for mirror, name in NAMES]
)
def test_an_old_name_is_the_object_that_it_names(mirror: Any, name: Any) -> None:
    old = getattr(importlib.import_module(mirror.module), name.alias)
    source = importlib.import_module(name.source)
    assert old is getattr(source, name.name)


@pytest.mark.parametrize("module", MIRRORS)
def test_all_lists_every_name(module: str) -> None:
    mirror = MIRRORS[module]
    listed = {name.alias for name in mirror.names if not name.is_module}
    imported = importlib.import_module(module)
    assert set(getattr(imported, "__all__", ())) == listed
    assert listed <= set(dir(imported))


@pytest.mark.parametrize("module", PACKAGES)
def test_a_package_knows_the_modules_below_it(module: str) -> None:
    package = importlib.import_module(module)
    for name in MIRRORS[module].submodules:
        assert getattr(package, name) is importlib.import_module(f"{module}.{name}")


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"EnvClinet.*Did you mean 'EnvClient'"):
        getattr(importlib.import_module("openenv.core"), "EnvClinet")  # noqa: B009


# ------------------------------------------------------------------ the files


def test_the_files_are_those_that_the_list_gives() -> None:
    assert script.differences(script.rendered(MIRRORS)) == "", "run `python scripts/mirrors.py`"


def test_the_check_shows_what_is_stale(tmp_path: Path) -> None:
    wanted = dict(script.rendered(MIRRORS))
    path = next(path for path in wanted if path.name == "client_types.py")
    wanted[path] += "# more\n"
    diff = script.differences(wanted)
    assert "client_types.py" in diff and "+# more" in diff
    del wanted[path]
    assert "-from openenv.types import StepResult" in script.differences(wanted)


def test_a_list_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    twice = tmp_path / "paths.toml"
    twice.write_text('["openenv.core.a"]\n"openenv.types" = ["State", "State = Action"]\n')
    with pytest.raises(SystemExit, match="State twice"):
        script.read_mirrors(twice)
    twice.write_text('["openenv.core"]\n"openenv.types" = ["S = State"]\n["openenv.core.a"]\n')
    with pytest.raises(SystemExit, match="cannot rename"):
        script.read_mirrors(twice)


@pytest.mark.parametrize("module", LEAVES)
def test_a_mirror_contains_imports_only(module: str) -> None:
    docstring, *statements = ast.parse(MIRRORS[module].path.read_text()).body
    assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
    *imports, names = statements
    assert all(isinstance(statement, ast.ImportFrom) for statement in imports)
    assert isinstance(names, ast.Assign) and ast.unparse(names.targets[0]) == "__all__"


@pytest.mark.parametrize("module", PACKAGES)
def test_a_package_contains_imports_and_one_table(module: str) -> None:
    tree = ast.parse(MIRRORS[module].path.read_text())
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert calls == ["lazy"]
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    assert not any(isinstance(node, definitions) for node in ast.walk(tree))


# ------------------------------------------------------------------ what they load


def modules_after(*imports: str) -> set[str]:
    """Import modules in a fresh interpreter, and say what is loaded afterwards."""
    code = "import importlib, sys\n"
    code += "".join(f"importlib.import_module({name!r})\n" for name in imports)
    code += "print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    return set(answer.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("module", mostly_extended(LEAVES, SHOWN))
def test_a_mirror_loads_no_more_than_its_targets(module: str) -> None:
    targets = sorted({name.source for name in MIRRORS[module].names})
    extra = modules_after(module) - modules_after(*targets)
    own = {".".join(module.split(".")[:depth]) for depth in range(1, module.count(".") + 2)}
    assert extra - own <= {"openenv._internal.lazy"}


@pytest.mark.parametrize("module", PACKAGES)
def test_a_package_loads_nothing_of_what_it_names(module: str) -> None:
    own = {".".join(module.split(".")[:depth]) for depth in range(1, module.count(".") + 2)}
    assert modules_after(module) - modules_after("openenv", "typing") <= own


def test_an_old_client_loads_no_server() -> None:
    code = "from openenv.core import EnvClient, StepResult\nimport sys\nprint(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    loaded = {name.partition(".")[0] for name in answer.stdout.split()}
    assert loaded.isdisjoint({"fastapi", "starlette", "uvicorn", "gradio", "fastmcp"})


# ------------------------------------------------------------------ the name before the name


def fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:openenv", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.slow
def test_the_oldest_name_warns_whoever_imports_it() -> None:
    answer = fresh("import openenv_core.env_server.types")
    assert answer.returncode == 0
    assert "<string>:1: DeprecationWarning: openenv_core is now openenv.core" in answer.stderr


@pytest.mark.filterwarnings("ignore:openenv_core:DeprecationWarning")
@pytest.mark.parametrize("module", [name for name in MIRRORS if name.startswith("openenv.core.")])
def test_a_deep_import_by_the_oldest_name_is_the_same_module(module: str) -> None:
    oldest = importlib.import_module(module.replace("openenv.core", "openenv_core", 1))
    assert oldest is importlib.import_module(module)
    assert oldest.__name__ == module and oldest.__spec__ is not None
    assert oldest.__spec__.name == module


@pytest.mark.slow
def test_the_oldest_name_comes_first_and_lazily() -> None:
    code = """
import openenv_core.env_server.types as oldest, sys
assert "fastapi" not in sys.modules
import openenv_core
from openenv_core import EnvClient, Environment
from openenv_core.env_server.interfaces import Environment as Same
from openenv_core.containers.runtime.providers import ContainerProvider
from openenv_core.http_env_client import HTTPEnvClient
import openenv, openenv.core.env_server.types as old
assert oldest is old and openenv_core.env_server.types is old
assert Environment is Same is openenv.Environment and HTTPEnvClient is EnvClient
class Mine(openenv.Action): ...
assert isinstance(Mine(), openenv_core.env_server.types.Action)
"""
    answer = fresh(code)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.count("DeprecationWarning") == 1


def test_the_oldest_name_has_nothing_that_is_not_there() -> None:
    for module in ("openenv_core.nothing", "openenv_core.env_server.nothing"):
        answer = fresh(f"import {module}")
        assert f"No module named '{module}'" in answer.stderr


@pytest.mark.slow
def test_star_imports_work() -> None:
    for module in ("openenv.core", "openenv.core.env_server", "openenv_core"):
        answer = fresh(f"from {module} import *\nprint(Environment, create_app, WSErrorCode)")
        assert answer.returncode == 0, answer.stderr
