"""What a schema yields is what its model takes, of whatever form; and nothing raises."""

from __future__ import annotations

import importlib
import random
import re
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from support.commands import ENVIRONMENTS

from openenv.tools.types import CallToolAction, ListToolsAction
from openenv.types import Action
from openenv.validation.actions import ActionSpace
from openenv.validation.probes import make_hacking_probes

NAMES = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/openenv.yaml"))


class Go(Action):
    kind: Literal["go"] = "go"
    where: str = Field(min_length=2, max_length=5)


class Wait(Action):
    kind: Literal["wait"] = "wait"
    seconds: float = Field(default=1.0, gt=0, le=60)


class Turn(Action):
    kind: Literal["left", "right"]
    degrees: float = Field(gt=0, lt=0.5)


class Look(Action):
    kind: Literal["look"]
    at: Annotated[Go | Turn, Field(discriminator="kind")]


Told = Annotated[Go | Wait | Turn | Look, Field(discriminator="kind")]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int = Field(ge=3, le=4)
    y: float = Field(gt=3.5, multiple_of=5)


class Node(BaseModel):
    name: str
    children: list[Node] = Field(default_factory=list)
    next: Node | None = None


class Everything(Action):
    colour: Colour
    at: Point
    path: list[Point] = Field(min_length=2, max_length=3)
    pair: tuple[int, str]
    words: set[str] = Field(min_length=3)
    numbers: set[int] = Field(min_length=2)
    tree: Node
    maybe: Point | None = None
    either: int | str
    low: float = Field(ge=-3, lt=-2)
    size: int = Field(gt=5, lt=7)
    few: int = Field(ge=1, le=10**9, multiple_of=7)
    id: UUID
    day: date
    at_time: datetime
    exact: Literal[7]
    table: dict[str, int]


UNIONS: dict[str, Any] = {
    "told apart by kind": Told,
    "of a union": Told | CallToolAction,
    "without a discriminator": Go | Wait,
    "of one form": Everything,
}


def space_of(kind: Any) -> ActionSpace:
    return ActionSpace(TypeAdapter(kind).json_schema())


def is_taken(kind: Any, action: dict[str, Any]) -> bool:
    try:
        TypeAdapter(kind).validate_json(TypeAdapter(dict[str, Any]).dump_json(action))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", UNIONS)
def test_the_least_actions_and_the_drawn_ones_are_what_the_model_takes(name: str) -> None:
    kind, space = UNIONS[name], space_of(UNIONS[name])
    for form in space.forms:
        TypeAdapter(kind).validate_python(form.minimal_action(), strict=False)
    generator = random.Random(3)
    for _ in range(100):
        TypeAdapter(kind).validate_python(space.sample(generator), strict=False)
    assert is_taken(kind, space.minimal_action())


def test_every_form_of_a_union_says_which_it_is() -> None:
    space = space_of(Told)
    assert [form.tag for form in space.forms] == [
        {"kind": "go"},
        {"kind": "wait"},
        {"kind": "left"},
        {"kind": "look"},
    ]
    assert space.minimal_action() == {"kind": "wait"}  # nothing else must be given
    drawn = {space.sample(random.Random(seed))["kind"] for seed in range(50)}
    assert drawn == {"go", "wait", "left", "look"}


def test_edges_are_the_bounds_and_one_beyond_and_the_rest_of_the_action_is_as_it_must_be() -> None:
    go, _, turn, _ = space_of(Told).forms
    taken = {what: is_taken(Told, action) for what, action in go.edges()}
    assert taken["where is as short as may be"] and taken["where is as long as may be"]
    assert not taken["where is too short by one"] and not taken["where is too long by one"]
    assert all(action["kind"] == "go" for _, action in go.edges())
    assert {what for what, _ in turn.edges()} >= {
        "degrees is at its exclusiveMinimum",
        "degrees is beyond its exclusiveMaximum",
    }


def test_each_member_of_a_union_is_probed_by_its_texts_and_its_edges() -> None:
    probes = make_hacking_probes(space_of(Told))
    assert [probe.name for probe in probes] == [
        "an empty action",
        "the least action",
        'an empty where of {"kind": "go"}, a long one, and others',
        "the edges of the schema",
    ]
    assert {action["kind"] for action in probes[-1].actions} == {"go", "wait", "left", "look"}
    assert sum(is_taken(Told, action) for probe in probes for action in probe.actions) > 5


def test_an_episode_that_ends_leaves_no_edge_untried() -> None:
    edges = make_hacking_probes(space_of(Go))[-1]
    count = len(edges.actions)
    assert edges.is_each and count > 8
    rest = edges.rest_after(3)
    assert rest is not None
    assert (rest.name, rest.actions) == (f"{edges.name}, from the 4. on", edges.actions[3:])
    last = rest.rest_after(2)
    assert last is not None
    assert (last.name, last.actions) == (f"{edges.name}, from the 6. on", edges.actions[5:])
    assert edges.rest_after(count) is None and edges.rest_after(0) is None
    assert make_hacking_probes(space_of(Go))[0].rest_after(1) is None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}},
        {"properties": [1], "required": "x", "anyOf": 3, "$defs": 4},
        {"type": "object", "properties": {"a": 1, "b": {"type": ["string", "null"]}}},
        {"properties": {"a": {"type": "integer", "minimum": "1", "maximum": 1e400}}},
        {"properties": {"a": {"type": "integer", "minimum": 9, "maximum": 1}}, "required": ["a"]},
        {"properties": {"a": {"enum": []}, "b": {"type": "array", "minItems": -1}}},
        {
            "$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}}},
            "$ref": "#/$defs/N",
        },
        {
            "$defs": {
                "N": {
                    "type": "object",
                    "properties": {"n": {"$ref": "#/$defs/N"}},
                    "required": ["n"],
                }
            },
            "$ref": "#/$defs/N",
        },
    ],
    ids=str,
)
def test_whatever_a_server_tells_nothing_raises(schema: dict[str, Any]) -> None:
    space = ActionSpace(schema)
    assert isinstance(space.minimal_action(), dict)
    assert isinstance(space.sample(random.Random(1)), dict)
    assert make_hacking_probes(space)
    space.enumerate_actions(), space.legal_actions({"legal_moves": [1]}), space.is_free


# ------------------------------------------------------------------ our environments


def action_of(name: str) -> Any:
    """What an environment's server takes."""
    models = importlib.import_module(f"{name}.models")
    if name == "browser_env":
        return models.AnyAction
    told = yaml.safe_load((ENVIRONMENTS / name / "openenv.yaml").read_text())["action"]
    if name == "echo_env":  # which has tools
        return ListToolsAction | CallToolAction | getattr(models, told)
    return getattr(models, told)


def test_there_are_thirteen() -> None:
    assert len(NAMES) == 13


@pytest.mark.parametrize("name", NAMES)
def test_one_of_the_least_actions_is_what_our_environment_takes(name: str) -> None:
    kind = action_of(name)
    taken = [action for action in space_of(kind).minimal_actions() if is_taken(kind, action)]
    assert taken


def test_every_probe_of_the_browser_says_what_kind_of_action_it_is() -> None:
    kind = action_of("browser_env")
    space = space_of(kind)
    assert len(space.forms) == 21
    for form in space.forms:
        (tag,) = form.tag
        assert tag == "kind"
        try:
            TypeAdapter(kind).validate_python(form.minimal_action())
        except ValidationError as refused:  # by what no schema says: one of four must be given
            assert not re.search("discriminator|union_tag|missing", str(refused)), refused
    # What is asked for least goes back, and what ends the episode is spoken to.
    assert is_taken(kind, space.minimal_action())
    answers = [
        action
        for probe in make_hacking_probes(space)
        for action in probe.actions
        if action.get("kind") == "answer" and "reward" in str(action.get("text"))
    ]
    assert answers and all(is_taken(kind, action) for action in answers)
