"""Interfaces as stored beside a dataset, and actions as tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from openenv.rollouts.episodes import to_json_value
from openenv.rollouts.interfaces import AgentTool, Interface

STEP = "step"  # name of an action that no known tool makes


def interface_to_json(interface: Interface) -> dict[str, Any]:
    """Convert an interface to JSON types."""
    visible = None if interface.visible is None else sorted(interface.visible)
    return {"tools": [asdict(tool) for tool in interface.tools], "visible": visible}


def interface_from_json(told: Mapping[str, Any] | None) -> Interface | None:
    """Return the interface that `interface_to_json` converted; None for None or an empty one."""
    if not told:
        return None
    tools = tuple(AgentTool(**tool) for tool in told["tools"])
    visible = told.get("visible")
    return Interface(None, tools, None if visible is None else frozenset(visible))


def call_of(action: Any, interface: Interface | None) -> tuple[str, dict[str, Any]]:
    """Return the tool call that makes an action: name and arguments.

    For an action that no tool makes, the name is ``step`` and the arguments are its fields.
    """
    fields = _fields(action)
    tools = () if interface is None else interface.tools
    if "tool_name" in fields and all(tool.is_call for tool in tools):
        return str(fields["tool_name"]), dict(fields.get("arguments") or {})
    fitting = [tool for tool in tools if _makes(tool, fields)]
    if not fitting:
        return STEP, fields
    # Of two tools that fit, take the one that accounts for more of the action.
    best = max(fitting, key=lambda tool: len(tool.fixed) + len(_named(tool) & fields.keys()))
    return best.name, {name: value for name, value in fields.items() if name in _named(best)}


def _named(tool: AgentTool) -> frozenset[str]:
    return frozenset(tool.input_schema.get("properties", ()))


def _makes(tool: AgentTool, fields: Mapping[str, Any]) -> bool:
    if tool.is_call:
        return False
    required = set(tool.input_schema.get("required", ()))
    is_fixed = all(fields.get(name, value) == value for name, value in tool.fixed.items())
    known = _named(tool) | tool.fixed.keys()
    return is_fixed and required <= fields.keys() and fields.keys() <= known


def _fields(action: Any) -> dict[str, Any]:
    if isinstance(action, BaseModel):
        given = action.model_fields_set | {"type", "tool_name", "arguments"}
        fields = {name: value for name, value in to_json_value(action).items() if name in given}
    else:
        fields = to_json_value(action)
    if not isinstance(fields, dict):
        return {"action": fields}
    return {name: value for name, value in fields.items() if name != "metadata"}
