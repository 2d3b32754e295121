"""A policy that acts at random within the schema of actions, or among legal actions."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from openenv.rollouts.interfaces import Interface, resolve_reference
from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    PolicyError,
    PolicyPlayer,
    PolicyTurn,
)

# Fields of observations in which environments list the legal actions.
LEGAL = ("legal_actions", "legal_moves", "available_actions", "valid_actions")
CHARACTERS = string.ascii_letters + string.digits + " "
MORE_CHARACTERS = 16
MORE_ITEMS = 3
WIDE = 1000  # range of integers without bounds
DEEPEST = 12
OPTIONAL_CHANCE = 0.5


class RandomPolicy:
    """Acts at random, reproducibly for each rollout of a run.

    Each tool is equally likely, and its arguments are drawn from its schema. If an observation
    lists legal actions, and the tool needs one argument, one of the legal actions is chosen.
    """

    name = "random"
    needs_interface = True
    wants_refusals = True

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        assert opening.interface is not None
        return _RandomPlayer(opening.interface, Random(opening.seed))  # nosec B311  # a game

    async def aclose(self) -> None:
        """Do nothing: no resources are held."""


class _RandomPlayer:
    def __init__(self, interface: Interface, chance: Random) -> None:
        self._tools = interface.tools
        self._chance = chance

    def act(self, turn: PolicyTurn) -> Decision:
        tool = self._chance.choice(self._tools)
        legal = _legal(turn.observation)
        properties = tool.input_schema.get("properties", {})
        required = tool.input_schema.get("required") or list(properties)
        if legal and len(required) == 1:
            return Decision(tool.action({str(required[0]): self._chance.choice(legal)}))
        return Decision(tool.action(sample_value(tool.input_schema, self._chance)))


def _legal(observation: Any) -> Sequence[Any]:
    for name in LEGAL:
        found = (
            observation.get(name)
            if isinstance(observation, Mapping)
            else getattr(observation, name, None)
        )
        if isinstance(found, list | tuple) and all(isinstance(one, int | str) for one in found):
            return found
    return ()


def sample_value(schema: Mapping[str, Any], chance: Random) -> Any:
    """Draw a value that a JSON schema allows.

    Raises:
        PolicyError: The schema has a restriction that cannot be drawn from, such as a pattern.
    """
    return _value(dict(schema), dict(schema), chance, 0)


def _value(schema: dict[str, Any], root: dict[str, Any], chance: Random, depth: int) -> Any:
    schema = resolve_reference(schema, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            options = _shallow(schema[choice]) if depth > DEEPEST else schema[choice]
            return _value(chance.choice(options), root, chance, depth + 1)
    if "allOf" in schema:
        merged: dict[str, Any] = {}
        for one in schema["allOf"]:
            merged |= resolve_reference(one, root)
        return _value(merged, root, chance, depth)
    kind = schema.get("type", "object" if "properties" in schema else "null")
    if isinstance(kind, list):
        kind = chance.choice(kind)
    return _KINDS.get(str(kind), _unknown)(schema, root, chance, depth)


def _shallow(options: list[Any]) -> list[Any]:
    """Return the options that end a recursive schema; all options if there are none."""
    plain = [one for one in options if one.get("type") not in ("object", "array", None)]
    return plain or options


def _unknown(schema: dict[str, Any], root: dict[str, Any], chance: Random, depth: int) -> Any:
    raise PolicyError(f"no value can be made up for the schema {schema!r:.200}")


def _bounds(schema: dict[str, Any]) -> tuple[float | None, float | None]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"]
    if "exclusiveMaximum" in schema:
        high = schema["exclusiveMaximum"]
    return low, high


def _integer(schema: dict[str, Any], root: dict[str, Any], chance: Random, depth: int) -> int:
    low, high = _bounds(schema)
    least = None if low is None else int(-(-low // 1))
    most = None if high is None else int(high // 1)
    if least is not None and "exclusiveMinimum" in schema and least <= low:  # type: ignore[operator]
        least += 1
    if most is not None and "exclusiveMaximum" in schema and most >= high:  # type: ignore[operator]
        most -= 1
    if least is None:
        least = 0 if most is None or most >= 0 else most - WIDE
    if most is None:
        most = least + WIDE
    step = int(schema.get("multipleOf", 1)) or 1
    first, last = -(-least // step), most // step
    if first > last:
        _unknown(schema, root, chance, depth)
    return chance.randint(first, last) * step


def _number(schema: dict[str, Any], root: dict[str, Any], chance: Random, depth: int) -> float:
    low, high = _bounds(schema)
    if low is None:
        low = 0.0 if high is None or high > 0 else high - 1.0
    if high is None:
        high = low + 1.0
    if high < low:
        _unknown(schema, root, chance, depth)
    inside = 1e-9 + (1 - 2e-9) * chance.random()  # never on a bound that may be excluded
    if high > low:
        return float(low + (high - low) * inside)
    return float(low)


def _text(schema: dict[str, Any], root: dict[str, Any], chance: Random, depth: int) -> str:
    if "pattern" in schema or schema.get("format") not in (None, "binary", "base64"):
        _unknown(schema, root, chance, depth)
    if schema.get("format") or schema.get("contentEncoding") == "base64":
        return "AAAA"
    least = int(schema.get("minLength", 0))
    most = min(int(schema.get("maxLength", least + MORE_CHARACTERS)), least + MORE_CHARACTERS)
    return "".join(
        chance.choice(CHARACTERS) for _ in range(chance.randint(least, max(least, most)))
    )


def _array(schema: dict[str, Any], root: dict[str, Any], chance: Random, depth: int) -> list[Any]:
    first = [_value(one, root, chance, depth + 1) for one in schema.get("prefixItems", ())]
    items = schema.get("items")
    if not isinstance(items, dict):
        return first
    least = int(schema.get("minItems", 0))
    most = int(schema.get("maxItems", max(least, len(first)) + MORE_ITEMS))
    most = max(least, min(most, least + MORE_ITEMS)) if depth <= DEEPEST else least
    count = max(0, chance.randint(least, most) - len(first))
    return first + [_value(items, root, chance, depth + 1) for _ in range(count)]


def _object(
    schema: dict[str, Any], root: dict[str, Any], chance: Random, depth: int
) -> dict[str, Any]:
    required = schema.get("required", ())
    made = {}
    for name, one in schema.get("properties", {}).items():
        if name in required or (depth < DEEPEST and chance.random() < OPTIONAL_CHANCE):
            made[name] = _value(one, root, chance, depth + 1)
    return made


_KINDS: dict[str, Callable[[dict[str, Any], dict[str, Any], Random, int], Any]] = {
    "array": _array,
    "boolean": lambda schema, root, chance, depth: chance.random() < 0.5,
    "integer": _integer,
    "null": lambda schema, root, chance, depth: None,
    "number": _number,
    "object": _object,
    "string": _text,
}
