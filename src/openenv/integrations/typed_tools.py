"""Tools as typed Python functions with Google-style docstrings.

Many trainers describe tools to a model by reading Python functions: types from the signature, and
descriptions from the docstring (for example transformers' `get_json_schema`). This module creates
such a function from a tool's JSON schema.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Optional, Union

from openenv.rollouts.interfaces import AgentTool, resolve_reference

TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
# Constraints of a JSON schema that a Python type cannot express, and how to describe them.
BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matching {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
DEEPEST = 6  # nesting depth of schemas below which a type is Any


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return a distinct Python identifier for each name.

    Args:
        taken: Identifiers that are already in use.
    """
    found: dict[str, str] = {}
    gone = set(taken)
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_") or "tool"
        if word[0].isdigit():
            word = f"tool_{word}"
        while word in gone or keyword.iskeyword(word):
            word += "_"
        gone.add(word)
        found[name] = word
    return found


class Parameters:
    """The parameters of a tool, as those of a Python function.

    Attributes:
        signature: Parameters with types and defaults: required ones first, otherwise in the order
            of the schema.
        names: The name in the schema of each Python parameter.
        lines: The ``Args`` lines of the docstring, one for each parameter.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        root = dict(schema)
        properties = {
            name: resolve_reference(dict(one), root)
            for name, one in root.get("properties", {}).items()
        }
        required = set(root.get("required", ()))
        called = identifiers(properties, taken=("self",))
        self.names = {word: name for name, word in called.items()}
        self.lines: list[str] = []
        found: list[inspect.Parameter] = []
        for name in sorted(properties, key=lambda name: name not in required):
            one: dict[str, Any] = properties[name]
            default: Any = inspect.Parameter.empty
            kind = python_type(one, root)
            if name not in required:
                default = one.get("default")
                if default is None:
                    kind = Optional[kind]  # noqa: UP045 - also of what has no `|`
            found.append(
                inspect.Parameter(
                    called[name],
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    annotation=kind,
                    default=default,
                )
            )
            self.lines.append(f"{called[name]}: {_described(name, one, root)}")
        self.signature = inspect.Signature(found, return_annotation=str)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call under the schema's names, without a None that is only the
        Python default.
        """
        defaults = self.signature.parameters
        return {
            self.names.get(word, word): value
            for word, value in given.items()
            if value is not None or word not in defaults or defaults[word].default is not None
        }


def parameters_of(tool: AgentTool) -> Parameters:
    """Return the parameters of an environment's tool."""
    return Parameters(tool.as_tool()["inputSchema"])


def python_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Any:
    """Return the Python type of a JSON schema; Any for a mixture."""
    schema = resolve_reference(dict(schema), dict(root))
    if "const" in schema:
        return Literal[schema["const"]]
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if depth > DEEPEST:
        return Any
    kinds = schema.get("anyOf") or schema.get("oneOf")
    if kinds:
        return _union([python_type(one, root, depth + 1) for one in kinds])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([TYPES.get(one, Any) for one in kind])
    if kind == "array" and "items" in schema:
        item: Any = python_type(schema["items"], root, depth + 1)
        return list[item]
    return TYPES.get(str(kind), Any)


def _union(kinds: list[Any]) -> Any:
    return Union[tuple(kinds)]  # noqa: UP007 - of as many as there are


def _described(name: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    about = schema.get("description") or f"The {name.replace('_', ' ')}"
    notes = [words.format(schema[key]) for key, words in BOUNDS.items() if key in schema]
    fields = _fields(schema, root)
    if fields:
        notes.append(f"an object of {fields}")
    text = _one_line(str(about)).rstrip(".")
    return f"{text} ({', '.join(notes)})." if notes else f"{text}."


def _one_line(text: str) -> str:
    """Put a text on one line; keep it from being parsed as a section of a docstring."""
    return re.sub(r"\b(Args|Returns|Raises):", r"\1 -", " ".join(text.split()))


def _fields(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> str:
    """Describe the fields of an object, which a Python type cannot express."""
    inner = resolve_reference(dict(schema.get("items") or schema), dict(root))
    found = inner.get("properties")
    if not found or depth > 1:
        return ""
    required = set(inner.get("required", ()))
    parts = []
    for name, one in found.items():
        one = resolve_reference(dict(one), dict(root))
        kind = " or ".join(map(repr, one["enum"])) if "enum" in one else one.get("type", "any")
        deeper = _fields(one, root, depth + 1)
        what = f"{kind} of {deeper}" if deeper else str(kind)
        parts.append(f"{name!r}: {what}" + ("" if name in required else ", optional"))
    return "{" + "; ".join(parts) + "}"


def typed_function(
    name: str,
    description: str,
    parameters: Parameters,
    function: Callable[..., Any],
    *,
    is_method: bool = False,
) -> Any:
    """Return a function whose signature and docstring describe a tool.

    Args:
        is_method: Whether `self` is the first parameter.
    """
    signature = parameters.signature
    annotations: dict[str, Any] = {
        one.name: one.annotation for one in signature.parameters.values()
    }
    if is_method:
        self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = signature.replace(parameters=[self, *signature.parameters.values()])
    about = _one_line(description) or f"Act in the environment: {name}."
    doc = [about, ""]
    if parameters.lines:
        doc += ["Args:", *(f"    {line}" for line in parameters.lines), ""]
    doc += ["Returns:", "    What the environment shows then."]
    function.__name__ = name
    function.__qualname__ = name
    function.__doc__ = "\n".join(doc)
    function.__annotations__ = {**annotations, "return": str}
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
