"""What `openenv` itself offers: all of it resolves, and no more than it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import openenv


@pytest.mark.parametrize("name", openenv.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(openenv, name) is not None
    assert name in dir(openenv)


def test_every_lazy_name_is_public() -> None:
    lazy = {name for name in dir(openenv) if not name.startswith("_")} - set(vars(openenv))
    submodules = {"auto", "cli", "core", "evals", "providers", "rewards", "rollouts", "server"}
    submodules |= {"tasks", "testing", "validation"}
    assert lazy - submodules <= set(openenv.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(openenv.__file__).read_text())
    (typed,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {
        alias.asname or alias.name
        for node in ast.walk(typed)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen | {"__version__", "cli", "core"} == set(openenv.__all__) | {"cli", "core"}


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"EnvClinet.*Did you mean 'EnvClient'"):
        getattr(openenv, "EnvClinet")  # noqa: B009 - no type checker would pass it


def test_an_unheard_of_name_gets_none() -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(openenv, "qwertyuiop")  # noqa: B009
    assert "Did you mean" not in str(caught.value)


def test_the_version_is_a_string() -> None:
    assert openenv.__version__ and isinstance(openenv.__version__, str)
