"""What `openenv` itself offers: all of it resolves, and no more than it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import openenv
from openenv._internal.lazy import lazy

PUBLIC: list[str] = vars(openenv)["__all__"]  # which type checkers do not see


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(openenv, name) is not None
    assert name in dir(openenv)


def test_every_lazy_name_is_public() -> None:
    lazy = {name for name in dir(openenv) if not name.startswith("_")} - set(vars(openenv))
    submodules = {"auto", "cli", "core", "evals", "providers", "rewards", "rollouts", "server"}
    submodules |= {"tasks", "testing", "validation"}
    assert lazy - submodules <= set(PUBLIC)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(openenv.__file__).read_text())
    (typed,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {
        alias.asname or alias.name
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen | {"__version__"} == set(PUBLIC)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"EnvClinet.*Did you mean 'EnvClient'"):
        getattr(openenv, "EnvClinet")  # noqa: B009 - no type checker would pass it


def test_an_unheard_of_name_gets_none() -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(openenv, "qwertyuiop")  # noqa: B009
    assert "Did you mean" not in str(caught.value)


def test_the_version_is_a_string() -> None:
    assert openenv.__version__ and isinstance(openenv.__version__, str)


def test_a_package_is_read_without_its_source() -> None:
    """Names are read from the compiled module, as in a program that ships no sources."""
    code = compile(
        "if TYPE_CHECKING:\n"
        "    from typing import Any\n"
        "    from made.up import First as First, second as Other\n"
        "    from made import up as up\n"
        "else:\n"
        "    get, names, public = lazy('made')\n",
        "<nowhere>",
        "exec",
    )
    made: dict[str, object] = {"TYPE_CHECKING": False, "lazy": lazy, "Any": object}
    exec(code, made)
    assert made["public"] == ["First", "Other", "up"]
