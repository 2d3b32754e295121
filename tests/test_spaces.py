"""Spaces as types of fields, and schemas as spaces."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from support.amounts import examples

from openenv import Action, Observation
from openenv.arrays import Array
from openenv.spaces import AnyOf, AnyText, Choice, annotation_of, from_plain, space_of, to_plain

# ------------------------------------------------------------------ random spaces

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=3)
KEYS = st.text(st.characters(codec="utf-8"), max_size=6)
FLOATS: st.SearchStrategy[Any] = st.sampled_from([np.float16, np.float32, np.float64])
INTS: st.SearchStrategy[Any] = st.sampled_from(
    [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]
)
BOOL: Any = np.bool_


@st.composite
def float_boxes(draw: st.DrawFn) -> spaces.Box:
    dtype, shape = draw(FLOATS), draw(SHAPES)
    width: Any = np.dtype(dtype).itemsize * 8
    numbers = st.floats(-1e4, 1e4, width=width) | st.sampled_from([-np.inf, np.inf])
    one = draw(hnp.arrays(dtype, shape, elements=numbers))
    two = draw(hnp.arrays(dtype, shape, elements=numbers))
    if draw(st.booleans()) and one.size:
        one, two = np.full_like(one, one.flat[0]), np.full_like(two, two.flat[0])
    low = np.where(one == np.inf, -np.inf, np.minimum(one, two)).astype(dtype)
    high = np.where(low == -np.inf, np.inf, np.maximum(one, two)).astype(dtype)
    return spaces.Box(low, high, shape, dtype)


@st.composite
def int_boxes(draw: st.DrawFn) -> spaces.Box:
    dtype, shape = draw(INTS), draw(SHAPES)
    elements = hnp.from_dtype(np.dtype(dtype))
    one, two = (draw(hnp.arrays(dtype, shape, elements=elements)) for _ in range(2))
    # What Box samples from has to end before the greatest int64.
    top = np.iinfo(np.int64).max - 1
    low, high = np.asarray(np.minimum(one, two)), np.asarray(np.maximum(one, two))
    if np.dtype(dtype) == np.int64:
        low, high = np.asarray(np.minimum(low, top)), np.asarray(np.minimum(high, top))
    if np.dtype(dtype).kind == "i" and draw(st.booleans()):
        return spaces.Box(-np.inf, np.inf, shape, dtype)
    return spaces.Box(low, high, shape, dtype)


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete[Any]:
    shape = draw(hnp.array_shapes(max_dims=2, max_side=3))
    dtype = draw(st.sampled_from([np.int8, np.int32, np.int64]))
    counts = draw(hnp.arrays(dtype, shape, elements=st.integers(1, 9)))
    start = draw(hnp.arrays(dtype, shape, elements=st.integers(-9, 9)))
    return spaces.MultiDiscrete(counts, dtype, start=start)


SINGLE = st.one_of(
    float_boxes(),
    int_boxes(),
    SHAPES.map(lambda shape: spaces.Box(0, 1, shape, BOOL)),
    st.builds(
        lambda n, start, dtype: spaces.Discrete(n, start=start, dtype=dtype),
        st.integers(1, 100),
        st.integers(0, 20),
        INTS,
    ),
    multi_discretes(),
    st.builds(
        spaces.MultiBinary,
        st.integers(1, 5) | st.lists(st.integers(1, 3), min_size=1, max_size=3),
    ),
)
TEXTS = st.builds(
    lambda shortest, more, characters: spaces.Text(
        shortest + more, min_length=shortest, charset=characters
    ),
    st.integers(0, 3),
    st.integers(0, 5),
    # Not NUL: Gymnasium samples in strings of NumPy, where it is the padding.
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9),
)
OURS = st.one_of(
    st.builds(AnyText, st.none() | st.integers(3, 9), min_length=st.integers(0, 3)),
    st.lists(
        st.text(st.characters(codec="utf-8")) | st.integers(-5, 5) | st.booleans() | st.none(),
        min_size=1,
        unique_by=lambda value: (isinstance(value, bool), value),
    ).map(Choice),
)


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.dictionaries(KEYS, inner, max_size=3).map(spaces.Dict),
        st.lists(inner, max_size=3).map(spaces.Tuple),
        inner.map(spaces.Sequence),
        st.lists(inner, min_size=1, max_size=3).map(spaces.OneOf),
    )


STACKED = SINGLE.map(lambda space: spaces.Sequence(space, stack=True))
GRAPHS = st.builds(spaces.Graph, SINGLE, st.none() | SINGLE)
SPACES = st.recursive(SINGLE | TEXTS | OURS | STACKED | GRAPHS, composed, max_leaves=6)


def same(one: Any, other: Any) -> bool:
    """Whether two elements are equal, down to the dtypes of their arrays."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def schema_of(space: Any) -> dict[str, Any]:
    return TypeAdapter(annotation_of(space)).json_schema()


@pytest.mark.slow
@examples(100)
@given(SPACES)
def test_the_schema_of_a_space_gives_the_same_space_again(space: Any) -> None:
    again = space_of(schema_of(space))
    assert again == space
    assert repr(again) == repr(space)


@pytest.mark.slow
@examples(100)
@given(SPACES, st.integers(0, 99))
def test_elements_survive_a_model_and_its_json(space: Any, seed: int) -> None:
    space.seed(seed)
    element = space.sample()
    model = create_model("Model", field=(annotation_of(space), ...))
    seen = model(field=to_plain(space, element))
    assert same(from_plain(space, seen.field), element)  # type: ignore[attr-defined]
    again = model.model_validate_json(seen.model_dump_json())
    assert same(from_plain(space, again.field), element)  # type: ignore[attr-defined]


# ------------------------------------------------------------------ what the schema says


def test_bounds_stand_in_the_standards_words_where_they_are_one_for_all() -> None:
    schema = schema_of(spaces.Box(0, 255, (2, 3), np.uint8))
    assert schema["items"]["items"] == {"type": "integer", "minimum": 0, "maximum": 255}
    assert (schema["dtype"], schema["shape"]) == ("uint8", [2, 3])
    schema = schema_of(spaces.Box(np.array([-1, -np.inf]), np.array([1, np.inf]), dtype=np.float64))
    assert (schema["low"], schema["high"]) == ([-1.0, None], [1.0, None])
    assert schema["items"] == {"type": "number"}


def test_the_names_of_a_discrete_stand_in_its_schema() -> None:
    annotation = annotation_of(spaces.Discrete(3, start=1), names=["noop", "left", "right"])
    schema = TypeAdapter(annotation).json_schema()
    assert (schema["minimum"], schema["maximum"]) == (1, 3)
    assert schema["names"] == ["noop", "left", "right"]
    again = space_of(schema)
    assert isinstance(again, Choice) and again.names == ("noop", "left", "right")
    assert again == spaces.Discrete(3, start=1)
    assert to_plain(again, np.int64(2)) == 2
    with pytest.raises(ValueError, match="2 names for 3"):
        annotation_of(spaces.Discrete(3), names=["left", "right"])
    with pytest.raises(TypeError, match="Discrete"):
        annotation_of(spaces.MultiBinary(3), names=["a", "b", "c"])


def test_keys_of_a_dict_may_be_any_text() -> None:
    space = spaces.Dict(
        {
            "model_config": spaces.Discrete(2),
            "a b": spaces.Text(3),
            "_x": AnyText(),
            "\0": spaces.Dict({"a": spaces.Discrete(2)}),
        }
    )
    assert space_of(schema_of(space)) == space
    with pytest.raises(TypeError, match="named by text"):
        annotation_of(spaces.Dict({1: spaces.Discrete(2)}))  # type: ignore[dict-item]


def test_a_space_of_somebody_elses_is_refused() -> None:
    class Odd(gymnasium.Space[int]): ...

    with pytest.raises(TypeError, match=r"Odd is none of Gymnasium's spaces"):
        annotation_of(Odd())


def test_models_check_what_the_schema_says() -> None:
    model = create_model("Model", turn=(annotation_of(spaces.Discrete(4)), ...))
    with pytest.raises(ValidationError):
        model(turn=4)
    model = create_model("Model", name=(annotation_of(spaces.Text(3)), ...))
    with pytest.raises(ValidationError):
        model(name="long")


# ------------------------------------------------------------------ schemas of others' models


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 5


class Inner(BaseModel):
    x: Annotated[float, Field(gt=0, le=1)]


Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class Theirs(Observation):
    colour: Colour
    move: Literal["up", "down"]
    level: Level = Level.LOW
    flag: bool
    count: Annotated[int, Field(ge=2, le=7)]
    total: int
    share: float
    name: str
    tag: Annotated[str, Field(min_length=1, max_length=4)]
    inner: Inner
    same: Inner
    pair: tuple[int, bool]
    grid: Annotated[
        list[Annotated[list[float], Field(min_length=2, max_length=2)]],
        Field(min_length=3, max_length=3),
    ]
    dice: Annotated[list[Annotated[int, Field(ge=1, le=6)]], Field(min_length=2, max_length=2)]
    cards: list[str]
    frame: Annotated[np.ndarray, Array(np.uint8, (2, 2, 3))]
    points: Annotated[np.ndarray, Array(np.float32, (None, 2))]
    packed: Annotated[np.ndarray, Array(np.uint8, (2,), text="base64")]
    target: int | None = None


def test_others_models_have_sensible_spaces() -> None:
    space = space_of(
        Theirs.model_json_schema(), path="observation", without=Observation.model_fields
    )
    assert isinstance(space, spaces.Dict)
    everything = spaces.Box(-np.inf, np.inf, (), np.int64)
    number = spaces.Box(-np.inf, np.inf, (), np.float64)
    inner = spaces.Dict(x=spaces.Box(np.nextafter(0, 1), 1, (), np.float64))
    expected: dict[str, Any] = {
        "colour": Choice(["red", "blue"]),
        "move": Choice(["up", "down"]),
        "level": Choice([1, 5]),
        "flag": Choice([False, True]),
        "count": spaces.Discrete(6, start=2),
        "total": everything,
        "share": number,
        "name": AnyText(),
        "tag": AnyText(4, min_length=1),
        "inner": inner,
        "same": inner,
        "pair": spaces.Tuple([everything, Choice([False, True])]),
        "grid": spaces.Box(-np.inf, np.inf, (3, 2), np.float64),
        "dice": spaces.MultiDiscrete([6, 6], start=[1, 1]),
        "cards": spaces.Sequence(AnyText()),
        "frame": spaces.Box(0, 255, (2, 2, 3), np.uint8),
        "points": spaces.Sequence(spaces.Box(-np.inf, np.inf, (2,), np.float32), stack=True),
        "packed": spaces.Box(0, 255, (2,), np.uint8),
        "target": AnyOf([everything, Choice([None])]),
    }
    assert list(space.spaces) == list(expected)
    for name, wanted in expected.items():
        assert space[name] == wanted, name


def test_an_observation_of_others_becomes_an_element_and_back() -> None:
    seen = Theirs(
        colour=Colour.BLUE,
        move="down",
        level=Level.HIGH,
        flag=True,
        count=3,
        total=-4,
        share=0.5,
        name="Zoë — 名前",
        tag="ab",
        inner=Inner(x=0.25),
        same=Inner(x=1.0),
        pair=(3, False),
        grid=[[0, 1], [2, 3], [4, 5]],
        dice=[1, 6],
        cards=["7♣"],
        frame=np.zeros((2, 2, 3), np.uint8),
        points=np.ones((4, 2), np.float32),
        packed=np.array([1, 2], np.uint8),
    )
    space = space_of(Theirs.model_json_schema(), without=Observation.model_fields)
    for fields in (seen.model_dump(), seen.model_dump(mode="json"), seen):
        element = from_plain(space, fields, strict=False)
        assert space.contains(element)
        assert (element["colour"], element["level"], element["target"]) == (1, 1, (1, 0))
        again = to_plain(space, element)
        assert (again["move"], again["level"], again["target"]) == ("down", 5, None)
        assert again["name"] == "Zoë — 名前"


def test_one_of_several_actions_is_a_choice_of_dicts() -> None:
    class Say(Action):
        kind: Literal["say"] = "say"
        text: str

    class Wait(Action):
        kind: Literal["wait"] = "wait"

    schema = TypeAdapter(Annotated[Say | Wait, Field(discriminator="kind")]).json_schema()
    space = space_of(schema, path="action", without=Action.model_fields)
    assert isinstance(space, AnyOf) and len(space.spaces) == 2
    number, element = from_plain(space, {"kind": "wait"})
    assert (number, element) == (1, {"kind": 0})
    assert to_plain(space, (0, {"kind": 0, "text": "hi"})) == {"kind": "say", "text": "hi"}


@pytest.mark.parametrize(
    ("annotation", "named"),
    [
        (dict[str, Any], "seen.field"),
        (Any, "seen.field"),
        (list[Any], r"seen.field\[\]"),
        (Annotated[np.ndarray, Array(np.float32)], "seen.field"),
        (Annotated[np.ndarray, Array(np.complex64, (2,))], "seen.field"),
        (Annotated[int, Field(multiple_of=3)], "seen.field"),
    ],
)
def test_where_nothing_fits_the_field_is_named_with_the_way_out(
    annotation: Any, named: str
) -> None:
    model = create_model("Model", field=(annotation, ...))
    with pytest.raises(ValueError, match=rf"^{named}: no Gymnasium space fits .*by hand"):
        space_of(model.model_json_schema(), path="seen")


class Tree(BaseModel):
    """A model that holds itself."""

    children: list[Tree]


def test_a_model_that_holds_itself_has_no_space() -> None:
    with pytest.raises(ValueError, match="holds itself"):
        space_of(Tree.model_json_schema(), path="tree")


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("space", "value", "said"),
    [
        (spaces.Discrete(3), 3, r"^action: expected an integer from 0 to 2, got 3"),
        (spaces.Discrete(3), True, "got True"),
        (spaces.Discrete(3), "1", "got '1'"),
        (Choice(["up", "down"]), "left", "expected one of 'up', 'down', got 'left'"),
        (Choice([1, 0]), True, "got True"),
        (spaces.Box(0, 1, (2,)), [0, 2], r"expected Box\(0.0, 1.0, \(2,\), float32\)"),
        (spaces.Box(0, 1, (2,)), [0, 1, 1], "shape"),
        (spaces.Box(0, 9, (2,), np.int8), [0.5, 1], "fit"),
        (spaces.Text(2, charset="ab"), "abc", "got 'abc'"),
        (spaces.Dict(a=spaces.Discrete(2)), {}, "no 'a'"),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": 1, "b": 1}, "got 'b'"),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": 5}, r"^action\.a: "),
        (spaces.Tuple([spaces.Discrete(2)]), [0, 1], "2 items instead of 1"),
        (spaces.Sequence(spaces.Discrete(2)), [0, 7], r"^action\[1\]: "),
        (spaces.OneOf([spaces.Discrete(2)]), {"index": 1, "value": 0}, r"^action\.index: "),
        (AnyOf([Choice([None]), spaces.Discrete(2)]), 9, "one of None.*; or .* from 0 to 1"),
        (
            spaces.Graph(spaces.Discrete(2), spaces.Discrete(2)),
            {"nodes": [0], "edges": [1], "edge_links": [[0, 1]]},
            r"^action\.edge_links: ",
        ),
        (
            spaces.Graph(spaces.Discrete(2), None),
            {"nodes": [0], "edges": [1], "edge_links": None},
            r"^action\.edges: ",
        ),
    ],
)  # fmt: skip
def test_what_is_none_of_a_space_is_refused_in_words(space: Any, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_plain(space, value, path="action")


def test_observations_may_stray_where_they_are_let() -> None:
    space = spaces.Dict(at=spaces.Box(0, 1, (1,)))
    assert from_plain(space, {"at": [2], "more": 1}, strict=False)["at"] == 2
    with pytest.raises(ValueError, match="more"):
        from_plain(space, {"at": [1], "more": 1})


def test_elements_that_are_none_are_refused_when_written() -> None:
    with pytest.raises(ValueError, match=r"^element: expected Discrete\(2\), got 'x'"):
        to_plain(spaces.Discrete(2), "x")
    with pytest.raises(ValueError, match=r"^element\.a: .*shape"):
        to_plain(spaces.Dict(a=spaces.Box(0, 1, (2,))), {"a": np.zeros(3, np.float32)})
    assert to_plain(spaces.Box(0, 1, (2,)), np.zeros(2)).dtype == np.float32


def test_the_module_is_imported_without_gymnasium() -> None:
    code = "import sys, openenv.spaces; print('gymnasium' in sys.modules, 'numpy' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert said.stdout.split() == ["False", "False"]
