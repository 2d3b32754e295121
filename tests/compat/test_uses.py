"""What public examples, READMEs and guides import, construct, pass and read; see uses.toml."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

USES: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "uses.toml").read_text()
)


def failures(module: str, names: dict[str, dict[str, Any]]) -> list[str]:
    """What of these uses does not work."""
    imported = importlib.import_module(module)
    found = []
    for name, use in names.items():
        if not hasattr(imported, name):
            found.append(f"{name} cannot be imported")
            continue
        thing = getattr(imported, name)
        found += [f"{name}.{one}" for one in use.get("attributes", ()) if not has(thing, one)]
        if "positional" in use or "keywords" in use:
            found += not_taken(name, thing, use)
    return found


def has(thing: Any, attribute: str) -> bool:
    """Whether a class, or what it makes, has an attribute."""
    if hasattr(thing, attribute):
        return True
    if isinstance(thing, type) and issubclass(thing, BaseModel):
        return attribute in thing.model_fields
    return isinstance(thing, type) and attribute in get_type_hints(thing)


def not_taken(name: str, thing: Any, use: dict[str, Any]) -> list[str]:
    """The arguments that a call does not take."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(thing).parameters.values()
    kinds = {one.kind for one in parameters}
    places = [one for one in parameters if one.kind in by_place]
    found = []
    if use.get("positional", 0) > len(places) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        found.append(f"{name} takes {len(places)} arguments by position")
    if inspect.Parameter.VAR_KEYWORD in kinds and not is_model(thing):
        return found
    known = {one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY}
    known |= set(thing.model_fields) if is_model(thing) else set()
    return found + [f"{name}({one}=...)" for one in use.get("keywords", ()) if one not in known]


def is_model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


@pytest.mark.filterwarnings("ignore:openenv_core is now:DeprecationWarning")
@pytest.mark.parametrize("module", USES)
def test_what_public_programs_use_is_there(module: str) -> None:
    assert failures(module, USES[module]) == []


def test_what_is_not_there_is_found() -> None:
    uses: dict[str, dict[str, Any]] = {
        "StepResult": {"keywords": ["observation", "score"], "attributes": ["done", "points"]},
        "Observation": {"keywords": ["done", "points"], "positional": 1},
        "Nothing": {},
    }
    assert failures("openenv.core.env_server", {"Nothing": {}}) == ["Nothing cannot be imported"]
    assert failures("openenv.models", uses) == [
        "StepResult.points",
        "StepResult(score=...)",
        "Observation takes 0 arguments by position",
        "Observation(points=...)",
        "Nothing cannot be imported",
    ]
