"""Each public name has an example in its docstring, which the reference shows."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

import openenv
from openenv import Environment
from openenv.server.mcp.bridge import _own_docstring

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = ("api.md", "errors.md")
PUBLIC: list[str] = openenv.__all__  # type: ignore[attr-defined]  # which is read from the imports
MODULES = [name for name in PUBLIC if isinstance(getattr(openenv, name), ModuleType)]
NAMES = [name for name in PUBLIC if name not in MODULES and name != "__version__"]


def examples_of(name: str) -> list[doctest.Example]:
    """Return the examples in the docstring of a name; one that is inherited does not count."""
    value = getattr(openenv, name)
    text = value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__
    return doctest.DocTestParser().get_examples(inspect.cleandoc(text or ""), name)


def test_the_names_without_an_example_are_modules_and_the_version() -> None:
    assert sorted(set(PUBLIC) - set(NAMES)) == ["__version__", "cli", "core"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_an_example_which_uses_it(name: str) -> None:
    """The examples are run where the reference shows them: see test_docs.py."""
    examples = examples_of(name)
    assert any(name in example.source for example in examples), f"no example names {name}"
    shown = "\n".join((REFERENCE / page).read_text(encoding="utf-8") for page in PAGES)
    assert all(line in shown for line in examples[-1].source.splitlines())


MODELS = [name for name in NAMES if isinstance(getattr(openenv, name), type)]
MODELS = [name for name in MODELS if issubclass(getattr(openenv, name), BaseModel)]


@pytest.mark.parametrize("name", MODELS)
def test_schemas_leave_the_examples_of_docstrings_out(name: str) -> None:
    model = getattr(openenv, name)
    described = model.model_json_schema()["description"]
    assert ">>>" in model.__doc__
    assert inspect.cleandoc(model.__doc__).startswith(described)
    assert "Example" not in described

    class Own(model):  # type: ignore[misc,valid-type]
        """A subclass's own words."""

    assert Own.model_json_schema()["description"] == "A subclass's own words."


def test_agents_read_the_docstrings_of_environments_only() -> None:
    """An environment without a docstring is not described by that of `Environment`."""

    class Bare(Environment[openenv.Action, openenv.Observation, openenv.State]): ...

    class Described(Bare):
        """A world of its own."""

    class Derived(Described): ...

    class NoSubclass: ...

    assert [_own_docstring(cls) for cls in (None, Bare, NoSubclass, Described, Derived)] == [
        *("", "", ""),
        *("A world of its own.", "A world of its own."),
    ]
