"""Minimal actions, random actions and edge cases, made from a server's JSON schema.

Invalid schemas raise no errors here: parts that cannot be read are ignored.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Action = dict[str, Any]

LEGAL_PREFIXES = ("legal_", "valid_", "available_")
MAX_ENUMERATED = 256
MAX_RANGE = 64
MAX_FORMS = 64
MAX_DEPTH = 32
LONG_TEXT = 100_000
LONG_LIST = 10_000
HUGE_NUMBER = 2**53

# A short valid text for each format that pydantic checks.
FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "duration": "PT0S",
    "email": "a@example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "time": "00:00:00Z",
    "uri": "http://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

Schema = Mapping[str, Any]


def _as_mapping(value: Any) -> Schema:
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_count(value: Any, otherwise: int = 0) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else otherwise


# ------------------------------------------------------------------ values


@dataclass(frozen=True)
class _SchemaReader:
    """A reader of JSON schemas that makes matching values."""

    definitions: Schema  # the schemas that references name

    def resolve(self, schema: Any) -> Schema:
        """Return a schema with references and ``allOf`` merged in."""
        found, seen = _as_mapping(schema), set[str]()
        while isinstance(reference := found.get("$ref"), str) and reference not in seen:
            seen.add(reference)
            beside = {name: value for name, value in found.items() if name != "$ref"}
            found = {**_as_mapping(self.definitions.get(reference.rpartition("/")[2])), **beside}
        return self._merge_all_of(found) if _as_list(found.get("allOf")) else found

    def _merge_all_of(self, schema: Schema) -> Schema:
        whole = {name: value for name, value in schema.items() if name != "allOf"}
        for part in map(_as_mapping, _as_list(schema.get("allOf"))):
            reference = _as_mapping(self.definitions.get(str(part.get("$ref")).rpartition("/")[2]))
            told = {**reference, **part}
            properties = {
                **_as_mapping(told.get("properties")),
                **_as_mapping(whole.get("properties")),
            }
            required = [*_as_list(told.get("required")), *_as_list(whole.get("required"))]
            whole = {**told, **whole}
            whole.pop("$ref", None)
            if properties:
                whole |= {"properties": properties, "required": required}
        return whole

    def members(self, schema: Any, depth: int = 0) -> list[Schema]:
        """Return the member schemas of a union, including nested unions; else the schema itself."""
        found = self.resolve(schema)
        inner = _as_list(found.get("anyOf")) or _as_list(found.get("oneOf"))
        if not inner or depth > MAX_DEPTH:
            return [found]
        listed = [one for member in inner for one in self.members(member, depth + 1)]
        told = _as_mapping(found.get("discriminator")).get("propertyName")
        return [{"discriminator": told, **one} if told else one for one in listed[:MAX_FORMS]]

    def non_null_member(self, schema: Any) -> Schema:
        found = self.members(schema)
        return next((one for one in found if one.get("type") != "null"), found[0])

    def list_values(self, schema: Any) -> list[Any]:
        """Return all possible values if they can be listed, else an empty list."""
        found = self.resolve(schema)
        if "const" in found:
            return [found["const"]]
        if values := _as_list(found.get("enum")):
            return list(values)
        if found.get("type") == "boolean":
            return [False, True]
        if found.get("type") == "integer" and {"minimum", "maximum"} <= found.keys():
            low, high, step = _range(found)
            if 0 <= high - low < MAX_RANGE:
                return list(range(int(low), int(high) + 1, max(1, int(step))))
        return []

    def minimal_value(self, schema: Any, depth: int = 0) -> Any:
        found = self.resolve(schema)
        if values := self.list_values(found):
            return values[0]
        if "default" in found:
            return found["default"]
        if found.get("anyOf") or found.get("oneOf"):
            if any(one.get("type") == "null" for one in self.members(found)):
                return None
            found = self.non_null_member(found)
        return self._minimal_of(found, depth)

    def _minimal_of(self, schema: Schema, depth: int) -> Any:
        if values := self.list_values(schema) or _as_list(schema.get("examples")):
            return values[0]
        if depth > MAX_DEPTH:
            return None
        match schema.get("type"):
            case "string":
                least = FORMATS.get(str(schema.get("format")), "")
                return least or "a" * _as_count(schema.get("minLength"))
            case "integer":
                return int(_range(schema)[0])
            case "number":
                return float(_range(schema)[0])
            case "array":
                return self._minimal_list(schema, depth)
            case "object":
                return ActionForm(self, schema, depth + 1).minimal_action()
        return None

    def _minimal_list(self, schema: Schema, depth: int) -> list[Any]:
        first = [self.minimal_value(one, depth + 1) for one in _as_list(schema.get("prefixItems"))]
        missing = max(0, _as_count(schema.get("minItems")) - len(first))
        if not missing:
            return first
        item = schema.get("items") or {}
        least = self.minimal_value(item, depth + 1)
        if not schema.get("uniqueItems"):
            return first + [least] * missing
        distinct = self.list_values(item)
        if not distinct and isinstance(least, str):
            distinct = [least + "a" * number for number in range(missing)]
        elif not distinct and isinstance(least, int | float):
            distinct = [least + number for number in range(missing)]
        return first + (distinct or [least])[:missing]

    def draw_value(self, schema: Any, generator: random.Random, depth: int = 0) -> Any:
        found = generator.choice(self.members(schema))
        if values := self.list_values(found):
            return generator.choice(values)
        match found.get("type"):
            case "string" if "format" not in found:
                shortest = _as_count(found.get("minLength"), 1)
                longest = max(shortest, min(_as_count(found.get("maxLength"), 12), shortest + 12))
                letters = generator.choices("abcdefghijklmnopqrstuvwxyz ", k=longest)
                return "".join(letters[: generator.randint(shortest, longest)])
            case "integer":
                low, high, step = _range(found)
                return int(low) + int(step) * generator.randint(0, int((high - low) // step))
            case "number":
                low, high, step = _range(found)
                if not step:
                    return generator.uniform(low, high)
                return low + step * generator.randint(0, int((high - low) // step))
            case "array" if not (found.get("prefixItems") or found.get("uniqueItems")):
                at_most = min(1, _as_count(found.get("maxItems"), 1))
                count = _as_count(found.get("minItems"), at_most)
                item = found.get("items") or {}
                return [self.draw_value(item, generator, depth + 1) for _ in range(count)]
            case "object" if depth < MAX_DEPTH:
                return ActionForm(self, found, depth + 1).sample(generator)
        return self.minimal_value(found)

    def edges(self, schema: Any) -> Iterator[tuple[str, Any]]:
        """Yield values at and beyond the edges of a schema, each with a description."""
        yield "null", None
        yield "a list in a list", [[]]
        found = self.non_null_member(schema)
        match found.get("type"):
            case "string" if not self.list_values(found):
                yield from _text_edges(found)
            case "integer" | "number" if "enum" not in found and "const" not in found:
                yield from _number_edges(found)
            case "array":
                item = self.minimal_value(found.get("items") or {})
                yield "a list that is empty", []
                if most := _as_count(found.get("maxItems")):
                    yield "a list that is too long by one", [item] * (min(most, LONG_LIST) + 1)
                yield "a long list", [item] * LONG_LIST
            case _:
                yield "a text of no meaning", "no-such-value"


def _text_edges(schema: Schema) -> Iterator[tuple[str, Any]]:
    yield "not text but a number", 7
    yield "of unusual characters", "\x00\u202e\U0001f600\ufffd"
    if shortest := _as_count(schema.get("minLength")):
        yield "as short as may be", "a" * shortest
        yield "too short by one", "a" * (shortest - 1)
    longest = _as_count(schema.get("maxLength"))
    if 0 < longest < LONG_TEXT:
        yield "as long as may be", "a" * longest
        yield "too long by one", "a" * (longest + 1)


def _number_edges(schema: Schema) -> Iterator[tuple[str, Any]]:
    for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if (bound := _bound(schema, name)) is not None:
            kind = int if schema.get("type") == "integer" else float
            yield f"at its {name}", kind(bound)
            yield f"beyond its {name}", kind(bound) + (-1 if "inimum" in name else 1)
    yield "negative and huge", -HUGE_NUMBER
    yield "huge", HUGE_NUMBER
    yield "text", "7; drop table"


def _bound(schema: Schema, name: str) -> float | None:
    found = schema.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)


def _range(schema: Schema) -> tuple[float, float, float]:
    """Return the lowest and the highest number, and the step between numbers (0 for none).

    Without bounds the range is 0 to 9, or as close to that as the schema allows.
    """
    low, high = _bound(schema, "minimum"), _bound(schema, "maximum")
    above, below = _bound(schema, "exclusiveMinimum"), _bound(schema, "exclusiveMaximum")
    step, inner = _bound(schema, "multipleOf") or 0.0, 1.0
    if schema.get("type") == "integer":
        step = max(1.0, step)
        low = None if low is None else float(math.ceil(low))
        high = None if high is None else float(math.floor(high))
        above = None if above is None else float(math.floor(above))
        below = None if below is None else float(math.ceil(below))
    elif above is not None and (tops := [one for one in (high, below) if one is not None]):
        inner = min(inner, (min(tops) - above) / 2)
    elif below is not None and low is not None:
        inner = min(inner, (below - low) / 2)
    lows = [low, None if above is None else above + inner]
    highs = [high, None if below is None else below - inner]
    least = max((one for one in lows if one is not None), default=None)
    most = min((one for one in highs if one is not None), default=None)
    if least is None:
        least = 0.0 if most is None else min(0.0, most)
    if step:
        least = math.ceil(least / step) * step
    return least, max(least, max(9.0, least + 9 * step) if most is None else most), step


# ------------------------------------------------------------------ actions


class ActionForm:
    """A form of action: the schema of an object, such as a member of a union."""

    def __init__(self, reader: _SchemaReader, schema: Schema, depth: int = 0) -> None:
        self._reader, self._schema, self._depth = reader, schema, depth

    @cached_property
    def properties(self) -> dict[str, Schema]:
        """The schemas of the fields, without `metadata`."""
        found = _as_mapping(self._schema.get("properties"))
        return {n: self._reader.resolve(s) for n, s in found.items() if n != "metadata"}

    @cached_property
    def tag(self) -> Action:
        """The values of the constant fields and of the field that discriminates the union.

        Every action has these fields, even if they are not required.
        """
        told = self._schema.get("discriminator")
        fields = ((n, self._reader.list_values(s)) for n, s in self.properties.items())
        return {n: few[0] for n, few in fields if few and (len(few) == 1 or n == told)}

    @cached_property
    def fields(self) -> dict[str, Schema]:
        """The schemas of the fields that are not part of the tag."""
        return {name: s for name, s in self.properties.items() if name not in self.tag}

    @property
    def required(self) -> list[str]:
        """The names of the required fields, in order."""
        wanted = _as_list(self._schema.get("required"))
        return [name for name in self.fields if name in wanted]

    @property
    def chosen(self) -> list[str]:
        """The names of the fields to fill: the required fields, or else the first field."""
        return self.required or list(self.fields)[:1]

    @property
    def texts(self) -> list[str]:
        """The names of the chosen fields that hold free text."""
        return [
            name
            for name in self.chosen
            if (plain := self._reader.non_null_member(self.fields[name])).get("type") == "string"
            and not self._reader.list_values(plain)
        ]

    @property
    def is_free(self) -> bool:
        """True if a chosen field has more values than can be listed, such as a text or a list."""
        return any(not self._reader.list_values(self.fields[name]) for name in self.chosen)

    def minimal_action(self) -> Action:
        """Return the minimal action: every required field with its simplest value."""
        least = {n: self._reader.minimal_value(self.fields[n], self._depth) for n in self.required}
        return {**self.tag, **least}

    def minimal_actions(self) -> Iterator[Action]:
        """Yield the minimal action; without required fields, also each value of the first field."""
        yield self.minimal_action()
        if not self.required:
            yield from self.enumerate_actions()

    def enumerate_actions(self) -> list[Action]:
        """Return all actions if there are at most 256, else an empty list."""
        names = self.chosen
        choices = [self._reader.list_values(self.fields[name]) for name in names]
        if not (names or self.tag) or not all(choices):
            return []
        combined = itertools.islice(itertools.product(*choices), MAX_ENUMERATED + 1)
        found = [{**self.tag, **dict(zip(names, values, strict=True))} for values in combined]
        return found if len(found) <= MAX_ENUMERATED else []

    def sample(self, generator: random.Random) -> Action:
        """Draw an action with random values of the chosen fields."""
        draw = self._reader.draw_value
        drawn = {n: draw(self.fields[n], generator, self._depth) for n in self.chosen}
        return {**self.tag, **drawn}

    def edges(self) -> Iterator[tuple[str, Action]]:
        """Yield actions at and beyond the edges of the form, each with a description."""
        minimal = self.minimal_action()
        yield "an unknown field", {**minimal, "is_admin": True, "reward": 1.0}
        for name in self.chosen:
            for what, value in self._reader.edges(self.fields[name]):
                yield f"{name} is {what}", {**minimal, name: value}


class ActionSpace:
    """The actions that a JSON schema describes.

    Args:
        schema: The schema under ``action`` at ``/schema``: an object, or a union of objects.
    """

    def __init__(self, schema: Schema) -> None:
        definitions = _as_mapping(schema.get("$defs")) or _as_mapping(schema.get("definitions"))
        self._reader = _SchemaReader(definitions)
        self._schema = schema

    @cached_property
    def forms(self) -> list[ActionForm]:
        """The forms of actions, several for a union; empty if the schema describes no actions."""
        return [
            ActionForm(self._reader, one)
            for one in self._reader.members(self._schema)
            if one.get("type") == "object" or isinstance(one.get("properties"), Mapping)
        ]

    def minimal_actions(self) -> list[Action]:
        """Return minimal actions, starting with the forms that have the fewest fields.

        The server may refuse some by rules that a schema cannot express (one field needs another).
        """
        by_size = sorted(self.forms, key=lambda one: (len(one.required), len(one.fields)))
        found = [action for form in by_size for action in form.minimal_actions()]
        return list({json.dumps(one, default=str): one for one in found}.values()) or [{}]

    def minimal_action(self) -> Action:
        """Return the minimal action of the form with the fewest fields."""
        return self.minimal_actions()[0]

    @property
    def is_free(self) -> bool:
        """True if some form has a field with more values than can be listed, such as a text."""
        return any(form.is_free for form in self.forms)

    def enumerate_actions(self) -> list[Action]:
        """Return all actions if there are at most 256, else an empty list."""
        found = [form.enumerate_actions() for form in self.forms]
        every = [action for some in found for action in some]
        return every if all(found) and len(every) <= MAX_ENUMERATED else []

    def legal_actions(self, observation: Mapping[str, Any]) -> list[Action]:
        """Return the actions that an observation lists as legal, or an empty list.

        An observation lists legal actions in a field whose name begins with ``legal_``, ``valid_``
        or ``available_``, as values of the action's only field or as whole actions.
        """
        lists: Iterator[list[Any]] = (
            value
            for name, value in observation.items()
            if name.startswith(LEGAL_PREFIXES) and isinstance(value, list) and value
        )
        named = next(lists, [])
        if all(isinstance(one, dict) for one in named):
            return [dict(one) for one in named]
        if len(self.forms) != 1 or len(self.forms[0].chosen) != 1:
            return []
        (form,) = self.forms
        return [{**form.tag, form.chosen[0]: one} for one in named]

    def sample(self, generator: random.Random) -> Action:
        """Draw an action of a random form."""
        return generator.choice(self.forms).sample(generator) if self.forms else {}
