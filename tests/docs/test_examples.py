"""Each public name has an example in its docstring, and each example runs."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import openenv

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
def test_the_example_of_a_name_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = examples_of(name)
    assert any(name in example.source for example in examples), f"no example names {name}"
    test = doctest.DocTest(examples, {"__name__": "example"}, name, None, None, None)
    results = doctest.DocTestRunner(verbose=False).run(test)
    assert results.failed == 0, capsys.readouterr().out
