"""Targets that name environments of other libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from wrappers.driving import driving
from wrappers.games import Corridor, Nim

from openenv import Environment, Observation, State
from openenv.server.loading import TargetError, load_target
from openenv.types import Action
from openenv.wrappers import AdapterError, from_openspiel, from_python
from openenv.wrappers.targets import SCHEMES, parse_library_target


@pytest.mark.parametrize(
    ("target", "name", "arguments"),
    [
        ("gymnasium:CartPole-v1", "CartPole-v1", {}),
        ("gymnasium:a:B-v0?x=1&y=b", "a:B-v0", {"x": 1, "y": "b"}),
        ("gymnasium:A?x=true&y=null&z=1.5", "A", {"x": True, "y": None, "z": 1.5}),
        ('gymnasium:A?x="1"&y=[1,2]&z={"a":1}', "A", {"x": "1", "y": [1, 2], "z": {"a": 1}}),
        ("gymnasium:A?x=a%26b&y=1+1&z=%C3%A4&e=", "A", {"x": "a&b", "y": "1+1", "z": "ä", "e": ""}),
        ("ors:http://host:1/name?split=test", "http://host:1/name", {"split": "test"}),
    ],
)
def test_a_target_is_taken_apart(target: str, name: str, arguments: dict[str, Any]) -> None:
    named = parse_library_target(target)
    assert named is not None
    assert (named.name, named.arguments) == (name, arguments)


@pytest.mark.parametrize(
    "target", ["echo_env", "module:attribute", "/a/b.py:Env", "gymnasium", "."]
)
def test_other_targets_are_left_alone(target: str) -> None:
    assert parse_library_target(target) is None


@pytest.mark.parametrize(
    "target",
    ["gymnasium:", "gymnasium:?x=1", "gymnasium:A?x", "gymnasium:A?x=1&x=2", "ors:A?a-b=1"],
)
def test_a_malformed_target_is_refused(target: str) -> None:
    with pytest.raises(AdapterError):
        parse_library_target(target)


def test_every_scheme_has_its_function() -> None:
    import importlib

    for scheme, place in SCHEMES.items():
        module, _, function = place.partition(":")
        if scheme != "verifiers":  # which is not installed beside this package
            assert callable(getattr(importlib.import_module(module), function))


def test_a_directory_of_that_name_is_still_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "gymnasium"
    directory.mkdir()
    (directory / "openenv.yaml").write_text("name: mine\napp: nowhere_here:app\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match="nowhere_here"):
        load_target("gymnasium:app")


class Count(Environment[Action, Observation, State]):
    def __init__(self, start: int = 0) -> None:
        self.start = start

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:  # type: ignore[override]
        return Observation(metadata={"start": self.start})

    def step(self, action: Action) -> Observation:  # type: ignore[override]
        return Observation()

    @property
    def state(self) -> State:
        return State()


def count() -> Count:
    return Count()


def test_python_passes_arguments_to_an_environment_class() -> None:
    with driving(f"python:{__name__}:Count?start=4") as env:
        assert env.reset().observation["metadata"] == {"start": 4}
    assert from_python(Count) is Count
    with pytest.raises(AdapterError, match="'start'"):
        from_python(Count, strat=4)


def test_python_tells_libraries_apart() -> None:
    names = [base.__name__ for one in (Corridor, Nim) for base in from_python(one).__mro__]
    assert {"GymnasiumEnvironment", "TurnsEnvironment"} <= set(names)


def test_python_takes_a_file(tmp_path: Path) -> None:
    games = Path(__file__).with_name("games.py")
    with driving(f"python:{games}:Corridor?length=1") as env:
        env.reset()
        assert env.step({"action": 2}).done


@pytest.mark.parametrize("source", [dict, 5, count, os.getcwd])
def test_python_refuses_what_is_no_environment(source: Any) -> None:
    with pytest.raises(AdapterError):
        from_python(source)


@pytest.mark.parametrize(
    "target", ["python:wrappers.games", "python:no_module_here:A", "python:sys:B"]
)
def test_what_is_not_there_is_an_error_of_the_target(target: str) -> None:
    with pytest.raises(TargetError):
        load_target(target)


def test_openspiel_plays_the_game_that_is_named() -> None:
    with driving("openspiel:tic_tac_toe?opponent_policy=first") as env:
        assert len(env.reset(seed=0).observation["legal_actions"]) == 9
        assert env.step({"action_id": 4}).observation["opponent_last_action"] == 0


def test_openspiel_is_told_the_nearest_game_and_argument() -> None:
    with pytest.raises(AdapterError, match="'tic_tac_toe'"):
        from_openspiel("tic_tac_to")
    with pytest.raises(AdapterError, match="'opponent_policy'"):
        from_openspiel("tic_tac_toe", opponent_polic="first")


def test_a_function_is_told_of_an_argument_that_it_does_not_take() -> None:
    with pytest.raises(TargetError, match="'split'"):
        load_target("ors:http://127.0.0.1:1/x?splt=a")
