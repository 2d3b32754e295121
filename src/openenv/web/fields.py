"""Form fields in the public package's format, for pages written for that package."""

from __future__ import annotations

from typing import Any

from openenv._internal.models import wire_schema

LONG_NAMES = ("message", "content", "description", "code", "text", "prompt")
LONG_TEXT = 100  # characters that may be more than a line
KINDS = {"boolean": "checkbox", "integer": "number", "number": "number", "string": "text"}


def extract_action_fields(action_cls: Any) -> list[dict[str, Any]]:
    """Describe the fields of an action model, except ``metadata``.

    Returns:
        A dictionary per field with ``name``, ``type`` (select, checkbox, number, text, textarea or
        tensor), ``required``, ``description``, ``default_value``, ``choices``, ``min_value``,
        ``max_value``, ``min_length``, ``max_length``, ``pattern``, ``placeholder``, ``help_text``.
    """
    schema = wire_schema(action_cls, "validation")
    required = schema.get("required", [])
    return [
        _field(name, _resolve_reference(info, schema), is_required=name in required)
        for name, info in schema.get("properties", {}).items()
        if name != "metadata"
    ]


def is_chat_env(action_cls: Any) -> bool:
    """Return whether the actions are tokens."""
    fields = extract_action_fields(action_cls)
    return any(one["name"] == "tokens" and one["type"] == "tensor" for one in fields)


def _resolve_reference(info: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a property with references and a null alternative resolved."""
    if "$ref" in info:
        name = str(info["$ref"]).rpartition("/")[2]
        return {**schema.get("$defs", {}).get(name, {}), **info}
    others = [one for one in info.get("anyOf", ()) if one.get("type") != "null"]
    return {**_resolve_reference(others[0], schema), **info} if len(others) == 1 else info


def _field(name: str, info: dict[str, Any], *, is_required: bool) -> dict[str, Any]:
    description = info.get("description", "")
    return {
        "name": name,
        "type": _kind(name, info),
        "required": is_required,
        "description": description,
        "default_value": info.get("default"),
        "choices": info.get("enum") or ([info["const"]] if "const" in info else None),
        "min_value": info.get("minimum", info.get("exclusiveMinimum")),
        "max_value": info.get("maximum", info.get("exclusiveMaximum")),
        "min_length": info.get("minLength"),
        "max_length": info.get("maxLength"),
        "pattern": info.get("pattern"),
        "placeholder": f"Enter {name.replace('_', ' ')}",
        "help_text": description,
    }


def _kind(name: str, info: dict[str, Any]) -> str:
    if "enum" in info or "const" in info:
        return "select"
    kind = info.get("type")
    if kind == "array" and info.get("items", {}).get("type") in ("integer", "number"):
        return "tensor"
    if kind == "string" and (name in LONG_NAMES or info.get("maxLength", 0) > LONG_TEXT):
        return "textarea"
    return KINDS.get(str(kind), "textarea" if kind in ("array", "object") else "text")
