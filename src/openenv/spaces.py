"""Gymnasium's spaces as the types of model fields, and back.

    class Seen(Observation):
        position: annotation_of(Box(-1.0, 1.0, (3,)))   # an array, its bounds in the JSON schema

    seen = Seen(position=to_plain(space, element))
    space_of(Seen.model_json_schema()["properties"]["position"]) == Box(-1.0, 1.0, (3,))

| space | the field's value | in JSON |
| --- | --- | --- |
| Box, MultiDiscrete, MultiBinary | array | lists of numbers |
| Discrete | int | integer |
| Choice | one of its values | that value |
| Text, AnyText | str | string |
| Dict | dict | object |
| Tuple | tuple | list |
| Sequence | list | list |
| Graph | dict of nodes, edges and edge_links | object |
| OneOf | dict of index and value | object |
| AnyOf | the value itself | that value |

`Choice`, `AnyText` and `AnyOf` are spaces that models need and Gymnasium lacks. Gymnasium and NumPy
are imported on first use.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from openenv._internal.lazy import lazy, lazy_module
from openenv.arrays import Array

if TYPE_CHECKING:
    import gymnasium
    import numpy as np
    from gymnasium import Space, spaces
    from gymnasium.vector import utils
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import core_schema

    from openenv._internal import choices as _choices
    from openenv._internal.choices import AnyOf as AnyOf
    from openenv._internal.choices import AnyText as AnyText
    from openenv._internal.choices import Choice as Choice
else:
    np = lazy_module("numpy")
    gymnasium = lazy_module("gymnasium")
    spaces = lazy_module("gymnasium.spaces")
    utils = lazy_module("gymnasium.vector.utils")
    _choices = lazy_module("openenv._internal.choices")
    __getattr__, _, _ = lazy(__name__)

__all__ = ["AnyOf", "AnyText", "Choice", "annotation_of", "from_plain", "space_of", "to_plain"]

ITS_OWN = ConfigDict(extra="forbid")


def annotation_of(
    space: Space[Any], *, names: Sequence[str] | None = None, title: str = "Element"
) -> Any:
    """Return the type of a model's field that holds an element of a space.

    The JSON schema of the field determines the space exactly; see `space_of`. Pydantic checks
    everything in the schema except the bounds of arrays, which `from_plain` checks.

    Args:
        space: The space.
        names: Names of the elements of a `Discrete`, for readers of the schema.
        title: Title of the objects in the schema.

    Raises:
        TypeError: The space is not one of Gymnasium's, is a `Dict` with keys that are not texts,
            or has `names` and is not a `Discrete`.
        ValueError: There are more or fewer names than elements.
    """
    if names is not None:
        space = _named(space, names)
    return _kind_of(space).annotation(space, title)


def to_plain(space: Space[Any], element: Any, *, path: str = "element") -> Any:
    """Convert an element of a space to the value of a model's field.

    Arrays are cast to the space's dtype if that changes no value (floating point values may lose
    precision), and may share their memory with the element.

    Args:
        space: The space.
        element: An element of the space; bounds are not checked.
        path: Name of the element in errors.

    Raises:
        ValueError: The element is not in the space; the message has the path, the element and the
            expected form.
    """
    return _kind_of(space).to_plain(space, element, path)


def from_plain(space: Space[Any], value: Any, *, path: str = "value", strict: bool = True) -> Any:
    """Convert the value of a field, or a JSON value, to an element of the space.

    Args:
        space: The space.
        value: The value of the field.
        path: Name of the value in errors.
        strict: If False, accept values that environments show beyond their space: numbers outside
            the bounds of an array, and fields that a `Dict` does not name, which are left out.

    Raises:
        ValueError: The value does not fit the space; the message has the path, the value and the
            expected form.
    """
    return _kind_of(space).from_plain(space, value, path, strict)


def space_of(
    schema: Mapping[str, Any], *, path: str = "", without: Iterable[str] = ()
) -> Space[Any]:
    """Return the space of a JSON schema, of a field or of a model from ``/schema``.

    The space is exact for schemas that `annotation_of` wrote. Otherwise enumerations and booleans
    give a `Choice`, integers with two bounds a `Discrete`, other numbers a `Box` without axes,
    strings an `AnyText`, objects with named fields a `Dict`, and unions and optional fields an
    `AnyOf`. Arrays of fixed length give a `Box`, a `MultiDiscrete` (integers with two bounds) or a
    `Tuple` (other items); arrays of any length give a `Sequence`.

    Args:
        schema: The schema, in which each ``$ref`` is looked up.
        path: Name of the schema in errors.
        without: Fields of the model to leave out.

    Raises:
        ValueError: No space fits; the message names the field, and says how to give spaces by hand.
    """
    return _SchemaReader(schema, path, frozenset(without)).space(schema, path)


# ------------------------------------------------------------------ code shared by all spaces


class _SpaceKind(NamedTuple):
    """The conversions for a class of spaces."""

    annotation: Callable[[Any, str], Any]
    to_plain: Callable[[Any, Any, str], Any]
    from_plain: Callable[[Any, Any, str, bool], Any]


def _kind_of(space: Space[Any]) -> _SpaceKind:
    of_class: Callable[[Any], _SpaceKind] = _kind_of_class
    return of_class(type(space))


@lru_cache(maxsize=256)
def _kind_of_class(cls: Any) -> _SpaceKind:
    kinds = _kinds()
    for parent in cls.__mro__:
        if parent in kinds:
            return kinds[parent]
    raise TypeError(
        f"{cls.__module__}.{cls.__qualname__} is none of Gymnasium's spaces: "
        f"{', '.join(kind.__name__ for kind in kinds)}"
    )


@cache
def _kinds() -> dict[type, _SpaceKind]:
    arrays = (_array, _array_from_plain)
    return {
        spaces.Box: _SpaceKind(_box_annotation, *arrays),
        spaces.MultiDiscrete: _SpaceKind(_multi_discrete_annotation, *arrays),
        spaces.MultiBinary: _SpaceKind(_multi_binary_annotation, *arrays),
        spaces.Discrete: _SpaceKind(_discrete_annotation, _discrete_to_plain, _discrete_from_plain),
        _choices.Choice: _SpaceKind(_choice_annotation, _choice_to_plain, _choice_from_plain),
        spaces.Text: _SpaceKind(_text_annotation, _text_to_plain, _text_from_plain),
        _choices.AnyText: _SpaceKind(_any_text_annotation, _text_to_plain, _text_from_plain),
        spaces.Dict: _SpaceKind(_dict_annotation, _dict_to_plain, _dict_from_plain),
        spaces.Tuple: _SpaceKind(_tuple_annotation, _tuple_to_plain, _tuple_from_plain),
        spaces.Sequence: _SpaceKind(_sequence_annotation, _sequence_to_plain, _sequence_from_plain),
        spaces.Graph: _SpaceKind(_graph_annotation, _graph_to_plain, _graph_from_plain),
        spaces.OneOf: _SpaceKind(_one_of_annotation, _one_of_to_plain, _one_of_from_plain),
        _choices.AnyOf: _SpaceKind(_any_of_annotation, _any_of_to_plain, _any_of_from_plain),
    }


def _misfit(path: str, expected: Any, value: Any, why: str = "") -> ValueError:
    reason = f" ({why})" if why else ""
    return ValueError(f"{path}: expected {expected}, got {reprlib.repr(value)}{reason}")


class _Described:
    """An annotation of a field whose JSON schema says more than the type."""

    def __init__(self, describe: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._describe = describe

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return self._describe(handler(schema))


def _also(**keywords: Any) -> _Described:
    return _Described(lambda schema: {**schema, **keywords})


def _object(title: str, fields: Mapping[str, Any], **keywords: Any) -> Any:
    """Return a typed dict, whose fields may have any names, unlike those of a model."""
    config = ConfigDict(**ITS_OWN, json_schema_extra=keywords) if keywords else ITS_OWN  # pyright: ignore[reportCallIssue]
    name = title.replace("\0", "")  # not allowed in the name of a type
    return with_config(config)(TypedDict(name, dict(fields)))  # type: ignore[operator]


def _title(*words: Any) -> str:
    return "_".join(map(str, words))


# ------------------------------------------------------------------ arrays


class _Bounds(NamedTuple):
    """The lowest and highest value at each place of an array; None if unbounded."""

    low: Any
    high: Any


def _box_annotation(space: spaces.Box, title: str) -> Any:
    low = _listed(space.low, space.bounded_below)
    return _array_type(space, _Bounds(low, _listed(space.high, space.bounded_above)))


def _multi_discrete_annotation(space: spaces.MultiDiscrete[Any], title: str) -> Any:
    start = space.start.astype(object)  # Python integers, which do not overflow
    bounds = _Bounds(start.tolist(), (start + space.nvec.astype(object) - 1).tolist())
    return _array_type(space, bounds, space="MultiDiscrete")


def _multi_binary_annotation(space: spaces.MultiBinary, title: str) -> Any:
    bounds = _Bounds(np.zeros(space.shape, int).tolist(), np.ones(space.shape, int).tolist())
    return _array_type(space, bounds, space="MultiBinary", n=space.n)


def _listed(limits: np.ndarray, is_bounded: np.ndarray) -> Any:
    listed = limits.astype(object)
    listed[~is_bounded] = None
    return listed.tolist()


def _array_type(of: Space[Any], bounds: _Bounds, **keywords: Any) -> Any:
    described = _Described(lambda schema: {**_with_bounds(schema, bounds), **keywords})
    return Annotated[np.ndarray, Array(of.dtype, of.shape), described]


def _with_bounds(schema: dict[str, Any], bounds: _Bounds) -> dict[str, Any]:
    """Add bounds to a schema: as standard keywords if equal at all places, else by place."""
    depth = len(schema["shape"])
    lows, highs = _flat(bounds.low, depth), _flat(bounds.high, depth)
    item = _innermost(schema, depth)
    item.pop("minimum", None)
    item.pop("maximum", None)
    if len({*lows}) > 1 or len({*highs}) > 1 or (item["type"] == "boolean" and not all(highs)):
        return {**schema, "low": bounds.low, "high": bounds.high}
    if item["type"] != "boolean":
        item |= {"minimum": lows[0]} if lows and lows[0] is not None else {}
        item |= {"maximum": highs[0]} if highs and highs[0] is not None else {}
    return schema


def _flat(nested: Any, depth: int) -> list[Any]:
    rows = [nested]
    for _ in range(depth):
        rows = [item for row in rows for item in row]
    return rows


def _innermost(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    for _ in range(depth):
        schema = schema["items"]
    return schema


def _array_from_plain(space: Space[Any], value: Any, path: str, strict: bool) -> Any:
    array = _array(space, value, path)
    if strict and not space.contains(array):
        raise _misfit(path, space, value)
    return array


def _array(space: Space[Any], value: Any, path: str) -> np.ndarray:
    if type(value) is np.ndarray and value.dtype == space.dtype and value.shape == space.shape:
        return value
    try:
        return cast("np.ndarray", _array_reader(space.dtype, space.shape).validate_python(value))
    except ValidationError as error:
        raise _misfit(path, space, value, error.errors()[0]["msg"]) from None


@lru_cache(maxsize=256)
def _array_reader(dtype: Any, shape: tuple[int, ...]) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[np.ndarray, Array(dtype, shape)])


# ------------------------------------------------------------------ choices


def _discrete_annotation(space: spaces.Discrete[Any], title: str) -> Any:
    first = int(space.start)
    limits = Field(ge=first, le=first + int(space.n) - 1)
    if space.dtype == np.int64:
        return Annotated[int, limits]
    return Annotated[int, limits, _also(dtype=space.dtype.name)]


def _choice_annotation(space: Choice, title: str) -> Any:
    if space.is_of_its_elements:
        return Annotated[_discrete_annotation(space, title), _also(names=list(space.names))]
    return Literal[space.values]


def _named(space: Space[Any], names: Sequence[str]) -> Choice:
    if not isinstance(space, spaces.Discrete):
        raise TypeError(f"only the elements of a Discrete have names, not those of {space}")
    first = int(space.start)
    elements = range(first, first + int(space.n))
    return _choices.Choice(elements, names, start=first, dtype=space.dtype)


def _discrete_to_plain(space: spaces.Discrete[Any], element: Any, path: str) -> int:
    try:
        return int(operator.index(element))
    except TypeError:
        raise _misfit(path, space, element) from None


def _discrete_from_plain(space: spaces.Discrete[Any], value: Any, path: str, strict: bool) -> Any:
    try:
        number = None if isinstance(value, bool) else int(operator.index(value))
    except TypeError:
        number = None
    first = int(space.start)
    if number is None or not first <= number < first + int(space.n):
        raise _misfit(path, f"an integer from {first} to {first + int(space.n) - 1}", value)
    return space.dtype.type(number)


def _choice_to_plain(space: Choice, element: Any, path: str) -> Any:
    try:
        return space.value_of(operator.index(element))
    except (TypeError, IndexError):
        raise _misfit(path, f"an element of {space}", element) from None


def _choice_from_plain(space: Choice, value: Any, path: str, strict: bool) -> Any:
    try:
        return space.element_of(value.item() if isinstance(value, np.generic) else value)
    except (KeyError, TypeError):
        known = ", ".join(map(repr, space.values))
        raise _misfit(path, f"one of {known}", value) from None


# ------------------------------------------------------------------ text


def _text_annotation(space: spaces.Text, title: str) -> Any:
    characters = "".join(space.character_list)
    return Annotated[_any_text_annotation(space, title), _also(charset=characters)]


def _any_text_annotation(space: spaces.Text, title: str) -> Any:
    longest = None if space == _choices.AnyText(min_length=space.min_length) else space.max_length
    return Annotated[str, Field(min_length=space.min_length, max_length=longest)]


def _text_to_plain(space: spaces.Text, element: Any, path: str) -> str:
    if not isinstance(element, str):
        raise _misfit(path, space, element)
    return element


def _text_from_plain(space: spaces.Text, value: Any, path: str, strict: bool) -> str:
    if not space.contains(value):
        raise _misfit(path, space, value)
    return cast(str, value)


# ------------------------------------------------------------------ composite spaces


def _dict_annotation(space: spaces.Dict, title: str) -> Any:
    wrong = [key for key in space.spaces if not isinstance(key, str)]
    if wrong:
        raise TypeError(f"the fields of JSON objects are named by text, not by {wrong[0]!r}")
    fields = {
        key: _kind_of(inner).annotation(inner, _title(title, key))
        for key, inner in space.spaces.items()
    }
    return _object(title, fields)


def _dict_to_plain(space: spaces.Dict, element: Any, path: str) -> dict[str, Any]:
    element = _fields(space.spaces, element, path, strict=True)
    return {
        key: to_plain(inner, element[key], path=f"{path}.{key}")
        for key, inner in space.spaces.items()
    }


def _dict_from_plain(space: spaces.Dict, value: Any, path: str, strict: bool) -> dict[str, Any]:
    fields = _fields(space.spaces, value, path, strict=strict)
    return {
        key: from_plain(inner, fields[key], path=f"{path}.{key}", strict=strict)
        for key, inner in space.spaces.items()
    }


def _fields(
    expected: Mapping[str, Any], value: Any, path: str, *, strict: bool
) -> Mapping[str, Any]:
    """Return the fields of a mapping or a model; refuse unexpected fields if `strict`.

    Raises:
        ValueError: The value has no fields, or a field is missing or unexpected.
    """
    fields = dict(value) if isinstance(value, BaseModel) else value
    if not isinstance(fields, Mapping):
        raise _misfit(path, f"an object with {', '.join(expected)}", value)
    for key in expected:
        if key not in fields:
            raise _misfit(path, f"an object with {', '.join(expected)}", value, f"no {key!r}")
    unknown = [key for key in fields if key not in expected] if strict else []
    if unknown:
        raise _misfit(path, f"no fields but {', '.join(expected)}", unknown[0])
    return fields


def _tuple_annotation(space: spaces.Tuple[Any], title: str) -> Any:
    parts = [
        _kind_of(inner).annotation(inner, _title(title, i)) for i, inner in enumerate(space.spaces)
    ]
    return tuple[tuple(parts)]  # type: ignore[misc]


def _tuple_to_plain(space: spaces.Tuple[Any], element: Any, path: str) -> tuple[Any, ...]:
    items = _items(element, path, space, len(space.spaces))
    parts = enumerate(zip(space.spaces, items, strict=True))
    return tuple(to_plain(inner, item, path=f"{path}[{i}]") for i, (inner, item) in parts)


def _tuple_from_plain(
    space: spaces.Tuple[Any], value: Any, path: str, strict: bool
) -> tuple[Any, ...]:
    items = _items(value, path, space, len(space.spaces))
    parts = enumerate(zip(space.spaces, items, strict=True))
    read = partial(from_plain, strict=strict)
    return tuple(read(inner, item, path=f"{path}[{i}]") for i, (inner, item) in parts)


def _items(value: Any, path: str, expected: Any, length: int | None = None) -> Sequence[Any]:
    if not isinstance(value, list | tuple | np.ndarray):
        raise _misfit(path, expected, value)
    if length is not None and len(value) != length:
        raise _misfit(path, expected, value, f"{len(value)} items instead of {length}")
    return cast("Sequence[Any]", value)


def _sequence_annotation(space: spaces.Sequence, title: str) -> Any:
    inner = space.feature_space
    item: Any = _kind_of(inner).annotation(inner, _title(title, "item"))
    items: Any = list[item]
    return Annotated[items, _also(stack=True)] if space.stack else items


def _sequence_to_plain(space: spaces.Sequence, element: Any, path: str) -> list[Any]:
    items = _parted(space.stacked_feature_space, element) if space.stack else element
    return _items_to_plain(space.feature_space, _items(items, path, space), path)


def _sequence_from_plain(space: spaces.Sequence, value: Any, path: str, strict: bool) -> Any:
    items = _items_from_plain(space.feature_space, _items(value, path, space), path, strict)
    return _stacked(space.feature_space, items) if space.stack else tuple(items)


def _items_to_plain(space: Space[Any], items: Iterable[Any], path: str) -> list[Any]:
    return [to_plain(space, item, path=f"{path}[{i}]") for i, item in enumerate(items)]


def _items_from_plain(
    space: Space[Any], items: Iterable[Any], path: str, strict: bool
) -> list[Any]:
    read = partial(from_plain, space, strict=strict)
    return [read(item, path=f"{path}[{i}]") for i, item in enumerate(items)]


def _parted(batched: Space[Any], elements: Any) -> list[Any]:
    return list(utils.iterate(batched, elements))


def _stacked(space: Space[Any], items: list[Any]) -> Any:
    room: Any = utils.create_empty_array(space, len(items))
    return utils.concatenate(space, items, room)


def _graph_annotation(space: spaces.Graph, title: str) -> Any:
    fields = {
        "nodes": _sequence_annotation(spaces.Sequence(space.node_space), _title(title, "node")),
        "edges": None,
        "edge_links": Annotated[np.ndarray, Array(np.int32, (None, 2))] | None,  # pyright: ignore[reportOperatorIssue]
    }
    if space.edge_space is not None:
        edges = spaces.Sequence(space.edge_space)
        fields["edges"] = _sequence_annotation(edges, _title(title, "edge")) | None
    return _object(title, fields, space="Graph")


def _graph_to_plain(space: spaces.Graph, element: Any, path: str) -> dict[str, Any]:
    if not isinstance(element, spaces.GraphInstance):
        raise _misfit(path, space, element)
    nodes = _parted(space.batch_node_space, element.nodes)
    plain: dict[str, Any] = {
        "nodes": _items_to_plain(space.node_space, nodes, f"{path}.nodes"),
        "edges": None,
        "edge_links": None,
    }
    if element.edges is not None:
        if space.edge_space is None:
            raise _misfit(f"{path}.edges", "none", element.edges)
        edges = _parted(space.batch_edge_space, element.edges)  # pyright: ignore[reportArgumentType]
        plain["edges"] = _items_to_plain(space.edge_space, edges, f"{path}.edges")
        plain["edge_links"] = np.asarray(element.edge_links, np.int32)
    return plain


def _graph_from_plain(space: spaces.Graph, value: Any, path: str, strict: bool) -> Any:
    fields = _fields(dict.fromkeys(("nodes", "edges", "edge_links")), value, path, strict=strict)
    nodes = _items(fields["nodes"], f"{path}.nodes", "a list")
    found = _items_from_plain(space.node_space, nodes, f"{path}.nodes", strict)
    edges, links = fields["edges"], fields["edge_links"]
    if edges is not None:
        if space.edge_space is None:
            raise _misfit(f"{path}.edges", "none", edges)
        listed = _items(edges, f"{path}.edges", "a list")
        read = _items_from_plain(space.edge_space, listed, f"{path}.edges", strict)
        edges = _stacked(space.edge_space, read)
        links = _links(links, len(found), len(read), f"{path}.edge_links")
    elif links is not None:
        raise _misfit(f"{path}.edge_links", "none, as there are no edges", links)
    return spaces.GraphInstance(_stacked(space.node_space, found), edges, links)


def _links(value: Any, nodes: int, edges: int, path: str) -> np.ndarray:
    at_nodes = spaces.Box(0, max(nodes - 1, 0), (edges, 2), np.int32)
    return cast("np.ndarray", from_plain(at_nodes, value, path=path))


def _one_of_annotation(space: spaces.OneOf[Any], title: str) -> Any:
    branches = [
        _object(
            _title(title, i),
            {
                "index": Literal[i],
                "value": _kind_of(inner).annotation(inner, _title(title, i, "of")),
            },
        )
        for i, inner in enumerate(space.spaces)
    ]
    if len(branches) == 1:
        return Annotated[branches[0], _also(space="OneOf")]
    union: Any = Union[tuple(branches)]  # noqa: UP007 - a runtime tuple
    return Annotated[union, Field(discriminator="index"), _also(space="OneOf")]


def _one_of_to_plain(space: spaces.OneOf[Any], element: Any, path: str) -> dict[str, Any]:
    index, inner = _branch(space, element, path)
    return {"index": index, "value": to_plain(inner, element[1], path=f"{path}.value")}


def _branch(space: spaces.OneOf[Any], element: Any, path: str) -> tuple[int, Space[Any]]:
    """Return the index of the space that an element names, and that space."""
    index, _ = _items(element, path, f"a pair of an index and an element of {space}", 2)
    number = from_plain(spaces.Discrete(len(space.spaces)), index, path=f"{path}[0]")
    return int(number), space.spaces[number]


def _one_of_from_plain(space: spaces.OneOf[Any], value: Any, path: str, strict: bool) -> Any:
    fields = _fields(dict.fromkeys(("index", "value")), value, path, strict=strict)
    number = from_plain(spaces.Discrete(len(space.spaces)), fields["index"], path=f"{path}.index")
    inner = space.spaces[number]
    return number, from_plain(inner, fields["value"], path=f"{path}.value", strict=strict)


def _any_of_annotation(space: AnyOf, title: str) -> Any:
    branches = [
        _kind_of(inner).annotation(inner, _title(title, i)) for i, inner in enumerate(space.spaces)
    ]
    return Union[tuple(branches)]  # noqa: UP007 - a runtime tuple


def _any_of_to_plain(space: AnyOf, element: Any, path: str) -> Any:
    _, inner = _branch(space, element, path)
    return to_plain(inner, element[1], path=path)


def _any_of_from_plain(space: AnyOf, value: Any, path: str, strict: bool) -> Any:
    reasons = []
    for index, inner in enumerate(space.spaces):
        try:
            return np.int64(index), from_plain(inner, value, path=path, strict=strict)
        except ValueError as error:  # noqa: PERF203 - it is the answer that is asked for
            reasons.append(str(error))
    raise ValueError("; or ".join(reasons))


# ------------------------------------------------------------------ reading schemas


class _SchemaReader:
    """A reader of schemas that may refer to parts of a root schema."""

    def __init__(self, root: Mapping[str, Any], path: str, without: frozenset[str]) -> None:
        self._root = root
        self._path = path
        self._without = without
        self._within: tuple[str, ...] = ()  # references on the current path, to detect cycles

    def space(self, schema: Mapping[str, Any], path: str) -> Space[Any]:
        if "$ref" in schema:
            return self._referred(schema, path)
        if len(schema.get("allOf", ())) == 1:
            return self.space({**schema["allOf"][0], **_but(schema, "allOf")}, path)
        read = self._by_form(schema)
        space = None if read is None else read(schema, path)
        if space is None:
            raise _no_space(schema, path)
        return space

    def _referred(self, schema: Mapping[str, Any], path: str) -> Space[Any]:
        reference = schema["$ref"]
        if reference in self._within:
            raise _no_space(schema, path, "it holds itself")
        before, self._within = self._within, (*self._within, reference)
        try:
            return self.space({**self._looked_up(reference, path), **_but(schema, "$ref")}, path)
        finally:
            self._within = before

    def _looked_up(self, reference: str, path: str) -> Mapping[str, Any]:
        found: Any = self._root
        try:
            for name in reference.removeprefix("#/").split("/"):
                found = found[name.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise _no_space({"$ref": reference}, path, "the schema has no such part") from None
        return cast("Mapping[str, Any]", found)

    def _by_form(
        self, schema: Mapping[str, Any]
    ) -> Callable[[Mapping[str, Any], str], Space[Any] | None] | None:
        kind = schema.get("type")
        if (tagged := schema.get("space")) is not None:
            return {
                "OneOf": self._one_of,
                "Graph": self._graph,
                "MultiDiscrete": self._array,
                "MultiBinary": self._array,
            }.get(tagged)
        if ("dtype" in schema and kind != "integer") or "shape" in schema:
            return self._array
        if "const" in schema or "enum" in schema:
            return self._choice
        if "anyOf" in schema or "oneOf" in schema or isinstance(kind, list):
            return self._any_of
        return {
            "integer": self._integer,
            "number": lambda s, _: _box(_least(s), _greatest(s), (), np.dtype("float64")),
            "boolean": lambda *_: _choices.Choice((False, True)),
            "null": lambda *_: _choices.Choice((None,)),
            "string": self._text,
            "object": self._dict,
            "array": self._list,
        }.get(cast(str, kind))

    def _array(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        dtype, shape = np.dtype(schema.get("dtype", "float64")), schema.get("shape")
        if dtype.kind not in "biuf" or shape is None or None in shape[1:]:
            return None
        if shape and shape[0] is None:
            one = {**schema.get("items", {}), "dtype": dtype.name, "shape": shape[1:]}
            return spaces.Sequence(self.space(one, path), stack=True)
        if schema.get("space") == "MultiBinary":
            return spaces.MultiBinary(schema["n"])
        is_listed = schema.get("type") != "object"
        item = _innermost(cast("dict[str, Any]", schema), len(shape)) if is_listed else {}
        lows, highs = schema.get("low", _least(item)), schema.get("high", _greatest(item))
        if schema.get("space") == "MultiDiscrete":
            start = np.broadcast_to(np.array(lows, object), shape)
            counts = np.broadcast_to(np.array(highs, object), shape) - start + 1
            return spaces.MultiDiscrete(counts.astype(dtype), dtype, start=start.astype(dtype))
        return _box(lows, highs, tuple(shape), dtype)

    def _choice(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        plain = all(isinstance(value, str | int | float | None) for value in values)
        return _choices.Choice(values) if values and plain else None

    def _any_of(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        branches = schema.get("anyOf") or schema.get("oneOf") or []
        if isinstance(schema.get("type"), list):
            branches = [{**schema, "type": kind} for kind in schema["type"]]
        return _choices.AnyOf([self.space(branch, path) for branch in branches])

    def _one_of(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        branches = schema.get("oneOf") or [_but(schema, "space")]
        found = (self._looked_up(b["$ref"], path) if "$ref" in b else b for b in branches)
        inner = [one["properties"]["value"] for one in found]
        return spaces.OneOf([self.space(one, f"{path}.value") for one in inner])

    def _graph(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        fields = schema["properties"]
        nodes = self.space(fields["nodes"]["items"], f"{path}.nodes")
        edges = fields["edges"].get("anyOf")
        of_edges = None if edges is None else self.space(edges[0]["items"], f"{path}.edges")
        return spaces.Graph(nodes, of_edges)

    def _integer(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        low, high = _least(schema), _greatest(schema)
        dtype = np.dtype(schema.get("dtype", "int64"))
        if schema.get("multipleOf", 1) != 1:
            return None
        if low is None or high is None:
            return _box(low, high, (), dtype)
        if "names" in schema:
            named = spaces.Discrete(high - low + 1, start=low, dtype=dtype)
            return _named(named, schema["names"])
        return spaces.Discrete(high - low + 1, start=low, dtype=dtype)

    def _text(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
        if "charset" in schema and longest is not None:
            return spaces.Text(longest, min_length=shortest, charset=schema["charset"])
        return _choices.AnyText(longest, min_length=shortest)

    def _dict(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        fields = schema.get("properties", {})
        if not fields and schema.get("additionalProperties") is not False:
            return None
        if path == self._path:  # the model itself, or one model of a union
            fields = {name: one for name, one in fields.items() if name not in self._without}
        inner = [(name, self.space(one, _at(path, name))) for name, one in fields.items()]
        return spaces.Dict(inner)

    def _list(self, schema: Mapping[str, Any], path: str) -> Space[Any] | None:
        least, most = schema.get("minItems"), schema.get("maxItems")
        length = least if least == most else None
        if "prefixItems" in schema or length == 0:
            parts = enumerate(schema.get("prefixItems", ()))
            return spaces.Tuple([self.space(one, f"{path}[{i}]") for i, one in parts])
        items = schema.get("items")
        if not isinstance(items, Mapping):
            return None
        inner = self.space(items, f"{path}[]")
        if length is None:
            return spaces.Sequence(inner, stack=bool(schema.get("stack", False)))
        return _of_one_length(inner, length)


def _no_space(schema: Mapping[str, Any], path: str, why: str = "") -> ValueError:
    reason = f" ({why})" if why else ""
    return ValueError(
        f"{path or 'the schema'}: no Gymnasium space fits {reprlib.repr(dict(schema))}{reason}; "
        "give the spaces by hand (action_space=..., observation_space=...)"
    )


def _but(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != name}


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _least(schema: Mapping[str, Any]) -> Any:
    if (beyond := schema.get("exclusiveMinimum")) is not None:
        return beyond + 1 if schema.get("type") == "integer" else math.nextafter(beyond, math.inf)
    return schema.get("minimum")


def _greatest(schema: Mapping[str, Any]) -> Any:
    if (beyond := schema.get("exclusiveMaximum")) is not None:
        return beyond - 1 if schema.get("type") == "integer" else math.nextafter(beyond, -math.inf)
    return schema.get("maximum")


def _box(lows: Any, highs: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    """Return a Box; limits are numbers or None, one for all places or one for each."""
    least, greatest = _widest(dtype)
    low, is_above = _limits(lows, least, shape, dtype)
    high, is_below = _limits(highs, greatest, shape, dtype)
    box = spaces.Box(low, high, shape, cast(Any, dtype))
    box.bounded_below, box.bounded_above = is_above, is_below  # Box ignores these for integers
    return box


def _widest(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -math.inf, math.inf
    if dtype.kind == "b":
        return False, True
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _limits(
    given: Any, otherwise: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[np.ndarray, np.ndarray]:
    limits = np.broadcast_to(np.array(given, object), shape)
    is_missing = limits == None  # noqa: E711 - at each place
    is_bounded = ~is_missing.astype(bool) if dtype.kind in "if" else np.ones(shape, bool)
    return np.where(is_missing, otherwise, limits).astype(dtype), is_bounded


def _of_one_length(inner: Space[Any], length: int) -> Space[Any]:
    """Return the space of a list of `length` elements of `inner`."""
    if isinstance(inner, spaces.Box):
        return utils.batch_space(inner, length)
    if type(inner) is spaces.Discrete or isinstance(inner, spaces.MultiDiscrete):
        return utils.batch_space(inner, length)
    return spaces.Tuple([inner] * length)
