"""Reading and writing of models for a peer.

Pydantic's own round trip is not enough between two programs:

- `model_dump` writes computed fields, which `extra="forbid"` refuses, and field names even if the
  reader expects aliases. Actions are written by their validation aliases and without computed
  fields. Observations and states are written as `model_dump` does, by name and with computed
  fields, since clients of version 0 read them so. Readers accept both names and aliases.
- A strict model takes an enum or a tuple from JSON only, and ``val_json_bytes`` applies to JSON
  only. Such models are validated as JSON.
- ``field: str = None`` is written as null, which `str` refuses: the field is left out instead.
- Two models of a union may fit the same fields. Then the field `ACTION_TYPE` names the model.

All this is determined once per class, from its core schema. For a class that needs none of it,
`ValueReader.read` is Pydantic's validator itself, without overhead.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from openenv._internal.generics import members, once_per_class
from openenv.arrays import as_base64, is_written_by_arrays
from openenv.errors import EncodingError, InvalidActionError

ACTION_TYPE = "openenv_action"
"""The field that names an action's model if several models of a union take the same fields."""

Change = Callable[[Any], Any]
Schema = Mapping[str, Any]


# ------------------------------------------------------------------ core schemas


def _core_schema(annotation: Any) -> Schema:
    schema: Any = TypeAdapter(annotation).core_schema
    return schema if isinstance(schema, Mapping) else {"type": "any"}


def _nodes(schema: Any) -> Iterator[Schema]:
    """Yield all nodes of a core schema; recursive schemas refer to definitions."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("type"), str):
                yield one
            waiting += [value for key, value in one.items() if key != "metadata"]
        elif isinstance(one, list | tuple):
            waiting += one


def _definitions(schema: Schema) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for node in _nodes(schema):
        if node["type"] == "definitions":
            found |= {one["ref"]: one for one in node["definitions"]}
    return found


class _ModelField(NamedTuple):
    name: str
    schema: Schema
    accepted: tuple[str, ...]  # keys that the validator looks for, besides the name
    serialized: str  # the serialization alias, or the name


class _Shape(NamedTuple):
    """The fields of a model, a dataclass or a typed dictionary."""

    title: str
    fields: tuple[_ModelField, ...]
    computed: frozenset[str]

    @property
    def known(self) -> frozenset[str]:
        keys = {key for one in self.fields for key in (one.name, one.serialized, *one.accepted)}
        return frozenset(keys)

    @property
    def needed(self) -> frozenset[str]:
        return frozenset(one.name for one in self.fields if one.schema["type"] != "default")

    @property
    def constants(self) -> dict[str, list[Any]]:
        """Return the allowed values of fields with literal types."""
        found = ((one.name, _literals(one.schema)) for one in self.fields)
        return {name: values for name, values in found if values}


def _literals(schema: Schema) -> list[Any]:
    while schema["type"] == "default":
        schema = schema["schema"]
    return list(schema["expected"]) if schema["type"] == "literal" else []


def _shape(node: Schema) -> _Shape | None:
    """Return the shape of a node that lists fields; None for another node."""
    kind = node["type"]
    if kind in ("model-fields", "typed-dict"):
        listed = [(name, one) for name, one in node["fields"].items()]
        title = str(node.get("model_name") or node.get("cls_name") or "")
    elif kind == "dataclass-args":
        listed = [(one["name"], one) for one in node["fields"]]
        title = str(node.get("dataclass_name", ""))
    else:
        return None
    computed = {
        name
        for one in node.get("computed_fields", ())
        for name in (one["property_name"], one.get("alias"))
        if name
    }
    fields = tuple(
        _ModelField(
            name,
            one["schema"],
            tuple(_aliases(one.get("validation_alias"))),
            str(one.get("serialization_alias") or name),
        )
        for name, one in listed
    )
    return _Shape(title, fields, frozenset(computed))


def _aliases(alias: Any) -> Iterator[str]:
    """Yield the keys of an alias; a path into lists or objects has no key."""
    if isinstance(alias, str):
        yield alias
    elif isinstance(alias, list):
        paths = alias if alias and isinstance(alias[0], list) else [alias]
        yield from (path[0] for path in paths if len(path) == 1 and isinstance(path[0], str))


# Types that refuse None. If a field of such a type has the default None, None means "not given".
_NOT_NONE = frozenset(
    {
        *("bool", "bytes", "complex", "dataclass", "date", "datetime", "decimal", "dict", "enum"),
        *("float", "frozenset", "int", "is-instance", "list", "literal", "model", "set", "str"),
        *("time", "timedelta", "tuple", "typed-dict", "url", "uuid"),
    }
)


def _is_none_by_default(schema: Schema) -> bool:
    if schema["type"] != "default" or schema.get("default", ...) is not None:
        return False
    inner = schema["schema"]
    return inner["type"] in _NOT_NONE or is_written_by_arrays(inner)


# ------------------------------------------------------------------ changing data along a schema

# The key under which a wrapping core schema holds the schema of its value.
_INNER = {
    "model": "schema",
    "dataclass": "schema",
    "nullable": "schema",
    "default": "schema",
    "definitions": "schema",
    "function-before": "schema",
    "function-after": "schema",
    "function-wrap": "schema",
    "lax-or-strict": "lax_schema",
    "json-or-python": "json_schema",
}


class _Walk:
    """A builder of a function that changes data along a core schema.

    Args:
        root: The core schema.
        rule: Returns the change of an object's keys for its shape; None for no change.
        leaf: Returns the change of any other value for its schema; None for no change.

    Attributes:
        change: The function; None if nothing has to be changed.
    """

    def __init__(
        self,
        root: Schema,
        rule: Callable[[_Shape], Change | None],
        leaf: Callable[[Schema], Change | None] = lambda schema: None,
    ) -> None:
        self._definitions = _definitions(root)
        self._rule, self._leaf = rule, leaf
        self._made: dict[str, Change | None] = {}
        self._is_needed = any(
            leaf(node) is not None or ((shape := _shape(node)) is not None and rule(shape))
            for node in _nodes(root)
        )
        self.change = self._of(root) if self._is_needed else None

    def _of(self, schema: Schema) -> Change | None:
        kind = schema["type"]
        own = self._leaf(schema)
        if own is not None:
            return own
        if kind == "definition-ref":
            return self._by_reference(schema["schema_ref"])
        if kind in _INNER:
            return self._of(schema[_INNER[kind]])
        if kind in ("list", "set", "frozenset", "generator"):
            return _of_items(self._of(schema.get("items_schema", _ANY)))
        if kind == "dict":
            return _of_values(self._of(schema.get("values_schema", _ANY)))
        if kind == "tuple":
            inner = [self._of(one) for one in schema["items_schema"]]
            return _of_tuple(inner, schema.get("variadic_item_index"))
        if kind in ("union", "tagged-union"):
            return self._of_union(schema)
        shape = _shape(schema)
        return None if shape is None else self._of_fields(shape)

    def _by_reference(self, reference: str) -> Change:
        def change(value: Any) -> Any:
            if reference not in self._made:
                self._made[reference] = None  # stops the recursion of a self-referring schema
                self._made[reference] = self._of(self._definitions[reference])
            found = self._made[reference]
            return value if found is None else found(value)

        return change

    def _of_fields(self, shape: _Shape) -> Change | None:
        inner: dict[str, Change] = {}
        for one in shape.fields:
            change = self._of(one.schema)
            if change is not None:
                inner |= dict.fromkeys((one.name, one.serialized, *one.accepted), change)
        rule = self._rule(shape)
        if rule is None and not inner:
            return None

        def change_fields(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            made = {key: inner[key](item) if key in inner else item for key, item in value.items()}
            return made if rule is None else rule(made)

        return change_fields

    def _of_union(self, schema: Schema) -> Change | None:
        listed = schema["choices"]
        choices = list(listed.values()) if isinstance(listed, dict) else listed
        schemas = [one[0] if isinstance(one, tuple) else one for one in choices]
        schemas = [one for one in schemas if isinstance(one, dict)]
        shaped, others = [], []
        for one in schemas:
            shape, change = self._shape_of(one), self._of(one)
            if shape is not None:
                shaped.append((shape, change))
            elif change is not None:
                others.append(change)
        if not others and all(change is None for _, change in shaped):
            return None

        def change_union(value: Any) -> Any:
            if isinstance(value, dict) and (found := _fitting(shaped, value)) is not None:
                change = found[1]
                return value if change is None else change(value)
            for change in others:
                value = change(value)
            return value

        return change_union

    def shapes_of(self, union: Schema) -> list[_Shape]:
        listed = (one[0] if isinstance(one, tuple) else one for one in union["choices"])
        return [shape for one in listed if (shape := self._shape_of(one)) is not None]

    def _shape_of(self, schema: Schema) -> _Shape | None:
        for _ in range(100):
            if schema["type"] == "definition-ref":
                schema = self._definitions[schema["schema_ref"]]
            elif schema["type"] in _INNER:
                schema = schema[_INNER[schema["type"]]]
            else:
                return _shape(schema)
        return None


_ANY: Schema = {"type": "any"}


def _fitting(
    shaped: Sequence[tuple[_Shape, Change | None]], value: Mapping[str, Any]
) -> tuple[_Shape, Change | None] | None:
    """Return the shape whose fields, or computed fields, include the keys of an object."""
    for also_computed in (False, True):
        for shape, change in shaped:
            known = shape.known | shape.computed if also_computed else shape.known
            constants = shape.constants
            if value.keys() <= known and all(
                name not in value or value[name] in values for name, values in constants.items()
            ):
                return shape, change
    return None


def _of_items(change: Change | None) -> Change | None:
    if change is None:
        return None
    return lambda value: (
        [change(item) for item in value] if isinstance(value, list | tuple) else value
    )


def _of_values(change: Change | None) -> Change | None:
    if change is None:
        return None
    return lambda value: (
        {key: change(item) for key, item in value.items()} if isinstance(value, dict) else value
    )


def _of_tuple(inner: Sequence[Change | None], variadic: int | None) -> Change | None:
    if not any(inner):
        return None

    def change(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        changes = list(inner)
        if variadic is not None:
            more = len(value) - len(inner)
            changes[variadic : variadic + 1] = [inner[variadic]] * (more + 1)
        padded = [*changes, *[None] * len(value)]
        return [
            item if one is None else one(item) for item, one in zip(value, padded, strict=False)
        ]

    return change


# ------------------------------------------------------------------ reading


def _as_input(shape: _Shape) -> Change | None:
    """Map the keys that a serializer writes to the keys that a validator takes."""
    accepted = {key for one in shape.fields for key in (one.name, *one.accepted)}
    drop = shape.computed - accepted
    names = {one.serialized: one.name for one in shape.fields if one.serialized not in accepted}
    absent = {
        key
        for one in shape.fields
        if _is_none_by_default(one.schema)
        for key in (one.name, one.serialized, *one.accepted)
    }
    if not (drop or names or absent):
        return None
    return lambda value: {
        names.get(key, key): item
        for key, item in value.items()
        if key not in drop and not (item is None and key in absent)
    }


def _as_value(schema: Schema) -> Change | None:
    """Map the values that a serializer writes to the values that a validator takes."""
    if schema["type"] == "json":  # validates JSON text, but is serialized as the parsed value
        return lambda value: value if isinstance(value, str) else to_json(value).decode()
    if schema["type"] != "literal":
        return None
    written = {
        to_json(one): one for one in schema["expected"] if isinstance(one, enum.Enum | bytes)
    }
    if not written:
        return None
    return lambda value: written.get(to_json(value, fallback=repr), value)


class ValueReader:
    """A reader that validates a peer's values of one type.

    Args:
        annotation: The type: a model, or a union of models.

    Attributes:
        read: Validates a value. Raises `ValidationError`, or `InvalidActionError` if several models
            of a union fit and the value does not name one.
    """

    def __init__(self, annotation: Any) -> None:
        self.adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = _core_schema(annotation)
        self._change = _Walk(schema, _as_input, _as_value).change
        shapes = [shape for node in _nodes(schema) if (shape := _shape(node)) is not None]
        has_aliases = any(one.accepted for shape in shapes for one in shape.fields)
        has_paths = any("validation_alias" in node for node in _nodes(schema))
        self._keys: Any = {"by_alias": True, "by_name": True} if has_aliases or has_paths else {}
        self._is_json = any(map(_counts_in_json_only, _nodes(schema)))
        self.read: Callable[[Any], Any] = self._read_carefully
        if self._change is None and not self._is_json:
            validate = self.adapter.validator.validate_python
            self.read = partial(validate, **self._keys) if self._keys else validate

    def _read_carefully(self, value: Any) -> Any:
        if self._change is not None:
            value = self._change(value)
        if not self._is_json or isinstance(value, BaseModel):
            return self.adapter.validator.validate_python(value, **self._keys)
        try:
            text = to_json(_jsonable(value), inf_nan_mode="constants")
        except ValueError:  # a value that cannot be JSON
            return self.adapter.validator.validate_python(value, **self._keys)
        return self.adapter.validator.validate_json(text, **self._keys)

    def fits(self, value: Any, *, strict: bool) -> bool:
        """Return whether a value can be read; `strict` forbids conversions of types."""
        if self._change is not None:
            value = self._change(value)
        text = to_json(_jsonable(value), inf_nan_mode="constants", fallback=str)
        try:
            self.adapter.validator.validate_json(text, strict=strict or None, **self._keys)
        except ValidationError:
            return False
        return True


def _counts_in_json_only(node: Schema) -> bool:
    config = node.get("config") or {}
    is_strict = node.get("strict") is True or config.get("strict") is True
    return is_strict or config.get("val_json_bytes", "utf8") != "utf8"


def _jsonable(value: Any) -> Any:
    """Return a value with arrays and bytes converted to their JSON form."""
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if type(value).__module__ == "numpy" and hasattr(value, "ndim"):
        return as_base64(value) if value.ndim else value.item()
    return value


@once_per_class
def reader_of(annotation: Any) -> ValueReader | UnionReader:
    """Return the reader of a type; a union's reader distinguishes the models."""
    listed = models_in(annotation)
    return UnionReader(annotation, listed) if len(listed) > 1 else ValueReader(annotation)


def models_in(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the models of an annotation, which may be a union."""
    return tuple(
        one for one in members(annotation) if isinstance(one, type) and issubclass(one, BaseModel)
    )


# ------------------------------------------------------------------ unions of models


class UnionReader(ValueReader):
    """A reader that validates values of a union of models.

    Args:
        annotation: The union.
        listed: The models of the union.
    """

    def __init__(self, annotation: Any, listed: Sequence[type[BaseModel]]) -> None:
        super().__init__(annotation)
        self._readers = {model: ValueReader(model) for model in listed}
        self._named = {model.__name__: model for model in listed}
        self._rivals = {
            one: [other for other in listed if other is not one and _take_the_same(one, other)]
            for one in listed
        }
        self._read_any = self.read
        if any(self._rivals.values()):
            self.read = self._read_one

    def _read_one(self, value: Any) -> Any:
        if type(value) is not dict:
            return self._read_any(value)
        if ACTION_TYPE in value:
            fields = dict(value)
            name = fields.pop(ACTION_TYPE)
            model = self._named.get(name) if isinstance(name, str) else None
            if model is None:
                raise _unknown_kind(name, self._named)
            return self._readers[model].read(fields)
        found = self._read_any(value)
        others = self._rivals.get(type(found))
        if others:
            is_exact = self._readers[type(found)].fits(value, strict=True)
            rivals = [one for one in others if self._readers[one].fits(value, strict=is_exact)]
            if rivals:
                raise _ambiguous([type(found), *rivals], value)
        return found


def _take_the_same(one: type[BaseModel], other: type[BaseModel]) -> bool:
    """Return whether some fields fit both models."""
    first, second = _fields_taken(one), _fields_taken(other)
    return first is None or second is None or _overlap(first, second)


class _FieldNames(NamedTuple):
    known: frozenset[str]
    needed: frozenset[str]


def _overlap(one: _FieldNames | _Shape, other: _FieldNames | _Shape) -> bool:
    """Return whether each side knows the fields that the other side needs."""
    return one.needed <= other.known and other.needed <= one.known


def _fields_taken(model: type[BaseModel]) -> _FieldNames | None:
    """Return the fields that a model takes and needs; None if the model takes any field."""
    if model.model_config.get("extra") != "forbid":
        return None
    fields = model.model_fields
    return _FieldNames(
        frozenset(fields), frozenset(name for name, one in fields.items() if one.is_required())
    )


def _are_told_apart(one: type[BaseModel], other: type[BaseModel]) -> bool:
    """Return whether a field with constant values distinguishes two models."""
    return _differ(_constants(one), _constants(other))


def _differ(first: Mapping[str, list[Any]], second: Mapping[str, list[Any]]) -> bool:
    """Return whether a field has constant values on both sides, and no value in common."""
    return any(
        not set(map(repr, first[name])) & set(map(repr, second[name]))
        for name in first.keys() & second.keys()
    )


def _constants(model: type[BaseModel]) -> dict[str, list[Any]]:
    for node in _nodes(_core_schema(model)):
        shape = _shape(node)
        if shape is not None and {one.name for one in shape.fields} == set(model.model_fields):
            return shape.constants
    return {}


@once_per_class
def named_kinds(annotation: Any) -> dict[type[BaseModel], str]:
    """Return the models of a union that are sent by name, with the names.

    Another model of the union takes the same fields, and no field distinguishes the two.
    """
    listed = models_in(annotation)
    return {
        one: one.__name__
        for one in listed
        if any(
            other is not one and _take_the_same(one, other) and not _are_told_apart(one, other)
            for other in listed
        )
    }


def kinds_to_name(annotation: Any) -> list[str]:
    """Return the names of `named_kinds`."""
    return list(named_kinds(annotation).values())


def check_distinct(annotation: Any) -> None:
    """Check that models of a union that are sent by name have different names.

    Raises:
        TypeError: Two models have the same name.
    """
    names = kinds_to_name(annotation)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TypeError(
            f"two action models are called {twice} and take the same fields, so that nobody can "
            "tell which one is meant; rename one, or give each a field such as "
            "kind: Literal['move'] = 'move'"
        )


def misread_as(annotation: Any, action: BaseModel, fields: Mapping[str, Any]) -> str | None:
    """Return the model as which a server without `ACTION_TYPE` would misread an action, or None."""
    try:
        found = TypeAdapter(annotation).validate_python(dict(fields))
    except ValidationError:
        return None  # the server will refuse the fields
    return None if type(found) is type(action) else type(found).__name__


def _unknown_kind(name: Any, known: Mapping[str, Any]) -> InvalidActionError:
    names = " or ".join(known)
    problem = {
        "type": "union_tag_invalid",
        "loc": [ACTION_TYPE],
        "msg": f"no action of this environment is called so; expected {names}",
        "input": name if isinstance(name, str) else repr(name),
    }
    return InvalidActionError([problem])


def _ambiguous(fitting: Sequence[type[BaseModel]], value: Any) -> InvalidActionError:
    names = [model.__name__ for model in fitting]
    first, other = fitting[0], fitting[1]
    told = "; ".join(
        f"give {name!r}"
        for name in _constants(first).keys() & _constants(other).keys()
        if _are_told_apart(first, other)
    )
    quoted = " or ".join(f'"{name}"' for name in names)
    problem = {
        "type": "union_tag_not_found",
        "loc": [],
        "msg": f"these fields fit {' and '.join(names)}; "
        + (told or f'say which by "{ACTION_TYPE}": {quoted}'),
        "input": value,
    }
    return InvalidActionError([problem])


def like_fields(annotation: Any) -> list[str]:
    """Return descriptions of fields whose union has models that nothing distinguishes.

    Pydantic reads each such field as the first model.
    """
    return [
        f"{field}, of {' or '.join(names)}"
        for model in models_in(annotation)
        for field, names in _like_fields(model).items()
    ]


@once_per_class
def _like_fields(model: type[BaseModel]) -> dict[str, list[str]]:
    schema = _core_schema(model)
    walk, found = _Walk(schema, lambda shape: None), dict[str, list[str]]()
    for node in _nodes(schema):
        shape = _shape(node)
        for one in () if shape is None else shape.fields:
            for inner in _nodes(one.schema):
                if shape is not None and inner["type"] == "union":
                    names = _alike(walk.shapes_of(inner))
                    if names:
                        found.setdefault(f"{shape.title}.{one.name}", names)
    return found


def _alike(shapes: Sequence[_Shape]) -> list[str]:
    """Return the names of shapes that take the same fields as another shape."""
    return [
        one.title
        for one in shapes
        if any(
            other is not one
            and _overlap(one, other)
            and not _differ(one.constants, other.constants)
            for other in shapes
        )
    ]


# ------------------------------------------------------------------ writing actions


def _as_sent(shape: _Shape) -> Change | None:
    """Map the names of fields to the keys that any server's validator takes."""
    keys = {
        one.name: one.accepted[0]
        for one in shape.fields
        if one.accepted and one.accepted[0] != one.name
    }
    absent = {one.name for one in shape.fields if _is_none_by_default(one.schema)}
    if not (keys or absent):
        return None
    return lambda value: {
        keys.get(key, key): item
        for key, item in value.items()
        if not (item is None and key in absent)
    }


def _unmasked(schema: Schema) -> Change | None:
    """Return a change that refuses secrets, which Pydantic serializes as asterisks."""
    function = schema.get("serialization", {}).get("function")
    name = getattr(function, "__name__", "")
    if getattr(function, "__module__", "") != "pydantic.types" or "_secret" not in name:
        return None

    def refuse(value: Any) -> Any:
        if value is None:
            return None
        raise EncodingError(
            "a field of type SecretStr, SecretBytes or Secret is written as asterisks, and the "
            "environment would get these; give it a field_serializer, or declare it as str"
        )

    return refuse


class Writer(NamedTuple):
    """A writer of a model's actions.

    Attributes:
        options: The arguments of `model_dump`.
        change: Function that changes the dumped dictionary; None for no change.
    """

    options: dict[str, Any]
    change: Change | None


@once_per_class
def writer_of(model: type[BaseModel]) -> Writer:
    """Return the writer of a model's actions in the form that the validator takes."""
    schema = _core_schema(model)
    change = _Walk(schema, _as_sent, _unmasked).change
    needs = change is not None or any(
        node["type"] == "json" or node.get("computed_fields") or "serialization_alias" in node
        for node in _nodes(schema)
    )
    # `round_trip` leaves out computed fields, and writes JSON text as text.
    return Writer({"by_alias": False, "round_trip": True} if needs else {}, change)


# ------------------------------------------------------------------ schemas


def wire_schema(annotation: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """Return the JSON schema of values on the wire.

    Mode ``validation`` describes actions: by alias, with `ACTION_TYPE` for models that need names.
    Mode ``serialization`` describes observations and states as they are written.
    """
    if mode == "validation":
        return _with_kinds(TypeAdapter(annotation).json_schema(), named_kinds(annotation))
    by_alias = all(
        bool(model.model_config.get("serialize_by_alias")) for model in models_in(annotation)
    )
    schema = TypeAdapter(annotation).json_schema(mode="serialization", by_alias=by_alias)
    described: dict[str, Any] = _with_null(schema)
    return described


def _with_null(schema: Any) -> Any:
    """Return a schema in which fields with the default null may be null."""
    if isinstance(schema, list):
        return [_with_null(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: _with_null(one) for name, one in value.items()}
        if key in ("properties", "$defs") and isinstance(value, dict)  # the keys are names
        else _with_null(value)
        for key, value in schema.items()
        if key != "default"
    }
    if "default" not in schema:
        return made
    if schema["default"] is None and isinstance(made.get("type"), str) and made["type"] != "null":
        made["type"] = [made["type"], "null"]
    elif schema["default"] is None and "$ref" in made:
        made = {"anyOf": [{"$ref": made.pop("$ref")}, {"type": "null"}], **made}
    return {**made, "default": schema["default"]}


def _with_kinds(schema: dict[str, Any], kinds: Mapping[Any, str]) -> dict[str, Any]:
    if not kinds:
        return schema
    definitions = schema.get("$defs", {})
    listed = schema.get("anyOf") or schema.get("oneOf") or []
    for variant, model in zip(listed, _in_order(listed, kinds, definitions), strict=True):
        if model is None:
            continue
        described = definitions.get(str(variant.get("$ref", "")).rpartition("/")[2], variant)
        constant = {"const": model, "title": "Action", "type": "string"}
        described["properties"] = {
            ACTION_TYPE: constant,
            **described.get("properties", {}),
        }
        described["required"] = [ACTION_TYPE, *described.get("required", ())]
    return schema


def _in_order(
    listed: Sequence[Schema], kinds: Mapping[Any, str], definitions: Mapping[str, Any]
) -> list[str | None]:
    """Return the name of each variant's model, or None if no name is sent."""
    titles = {
        str(model.model_config.get("title") or model.__name__): kinds[model] for model in kinds
    }
    found: list[str | None] = []
    for variant in listed:
        described = definitions.get(str(variant.get("$ref", "")).rpartition("/")[2], variant)
        found.append(titles.get(str(described.get("title", ""))))
    return found
