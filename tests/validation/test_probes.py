"""Plans are read strictly; what a schema yields is what it allows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from openenv.types import Action
from openenv.validation.actions import ActionSpace
from openenv.validation.probes import (
    PlanError,
    ProbeView,
    make_hacking_probes,
    make_schema_policy,
    read_plan,
    script_policy,
)

PLAN = {
    "plan_schema_version": "1",
    "reset": {"episode_id": "probe", "seed": 42, "options": {"level": 2}},
    "actions": [{"say": "a"}],
}


class Move(Action):
    """One of a few."""

    go: bool
    speed: int = Field(ge=1, le=3)


class Words(Action):
    """Anything."""

    text: str = Field(min_length=2)
    note: str | None = None


def space(model: type[Action]) -> ActionSpace:
    return ActionSpace(model.model_json_schema())


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_plan_is_read(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path / "plan.json", PLAN))
    assert plan.reset == {"level": 2, "seed": 42, "episode_id": "probe"}
    assert plan.actions == ({"say": "a"},)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"plan_schema_version": "2"}, "plan_schema_version"),
        ({"extra": 1}, "extra"),
        ({"actions": []}, "actions"),
        ({"actions": [{}] * 101}, "actions"),
        ({"actions": ["a"]}, "actions[0]"),
        ({"reset": {"seed": -1}}, "reset.seed"),
        ({"reset": {"seed": 2**32}}, "reset.seed"),
        ({"reset": {"seed": True}}, "reset.seed"),
        ({"reset": {"seed": 1, "options": {"seed": 2}}}, "reset.options"),
        ({"reset": {"seed": 1, "episode_id": ""}}, "reset.episode_id"),
    ],
)
def test_a_plan_that_is_none_is_refused_by_the_field(
    tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    with pytest.raises(PlanError) as refused:
        read_plan(written(tmp_path / "plan.json", {**PLAN, **change}))
    assert what in str(refused.value)
    assert "plan.json" in str(refused.value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({**PLAN, "actions": [{"a": nested(40)}]}),
        json.dumps({**PLAN, "actions": [{"a": list(range(10_001))}]}),
        json.dumps({**PLAN, "actions": [{"a": "x" * 70_000}]}),
        '{"plan_schema_version": "1", "plan_schema_version": "1"}',
        '{"actions": [{"a": NaN}]}',
        "",
    ],
)
def test_a_plan_beyond_the_bounds_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(PlanError):
        read_plan(written(tmp_path / "plan.json", content))


def test_a_plan_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        read_plan(tmp_path / "plan.json")


def test_the_least_action_is_one_that_the_model_takes() -> None:
    for model in (Move, Words):
        model.model_validate(space(model).minimal_action())


def test_few_actions_are_all_listed_and_many_are_not() -> None:
    assert len(space(Move).enumerate_actions()) == 6
    assert space(Words).enumerate_actions() == []
    assert space(Words).is_free and not space(Move).is_free


def test_what_is_drawn_is_what_the_model_takes() -> None:
    generator = random.Random(1)
    for model in (Move, Words):
        for _ in range(50):
            model.model_validate(space(model).sample(generator))


def test_a_policy_takes_legal_actions_where_they_are_named_and_is_the_same_each_time() -> None:
    shown = ProbeView({"legal_moves": ["aa", "bb"]}, 0)
    chosen = [make_schema_policy(space(Words), 3, 5)(shown) for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert chosen[0] in ({"text": "aa"}, {"text": "bb"})
    assert make_schema_policy(space(Words), 3, 5)(ProbeView({}, 5)) is None


def test_a_script_ends_after_its_last_action() -> None:
    policy = script_policy([{"a": 1}])
    assert policy(ProbeView({}, 0)) == {"a": 1}
    assert policy(ProbeView({}, 1)) is None


def test_only_what_is_no_legal_play_is_a_trick_that_must_earn_nothing() -> None:
    assert [probe.name for probe in make_hacking_probes(space(Move)) if probe.earns] == [
        "an empty action",
        "the edges of the schema",
    ]
    assert len([probe for probe in make_hacking_probes(space(Words)) if probe.earns]) == 8
