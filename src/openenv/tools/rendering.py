"""Conversion of tools to the formats of model APIs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from openenv.tools.types import Tool

__all__ = ["ToolFormat", "render_tools"]

ToolFormat = Literal["openai", "openai-responses", "anthropic", "mcp"]

# Valid names for the APIs; MCP also accepts dots, and up to 128 characters.
NAMES = {"openai": r"[A-Za-z0-9_-]{1,64}", "anthropic": r"[A-Za-z0-9_-]{1,128}"}


def render_tools(
    tools: Iterable[Tool | Mapping[str, Any]], format: ToolFormat = "openai"
) -> list[dict[str, Any]]:
    """Convert tools to the format of a model API.

        tools = render_tools(client.list_tools(), "anthropic")

    Args:
        tools: Tools from `MCPToolClient.list_tools`, from the ``tools`` of `/schema`, or in the
            form of MCP's `tools/list`.
        format: ``openai`` for Chat Completions and compatible APIs (vLLM, TRL, chat templates of
            transformers), ``openai-responses`` for the Responses API, ``anthropic`` for Messages,
            ``mcp`` for the form of `tools/list`.

    Raises:
        ValueError: The format is unknown, or the API does not accept the name of a tool.
        TypeError: A value is not a tool.
    """
    if format not in get_args(ToolFormat):
        known = ", ".join(get_args(ToolFormat))
        raise ValueError(f"unknown format {format!r}; it must be one of {known}")
    return [_render(_to_mcp_form(tool), format) for tool in tools]


def _to_mcp_form(tool: Tool | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(tool, Tool):
        tool = tool.model_dump()
    if not isinstance(tool, Mapping) or "name" not in tool:
        raise TypeError(f"expected a tool, with name and schema; got {tool!r:.100}")
    schema = tool.get("inputSchema") or tool.get("input_schema") or {}
    described = {"name": tool["name"], "description": tool.get("description") or ""}
    # Chat templates and APIs rely on both keys.
    return {**described, "inputSchema": {"type": "object", "properties": {}, **schema}}


def _render(tool: dict[str, Any], format: ToolFormat) -> dict[str, Any]:
    if format == "mcp":
        return tool
    name, description, schema = tool["name"], tool["description"], tool["inputSchema"]
    pattern = NAMES["anthropic" if format == "anthropic" else "openai"]
    if not re.fullmatch(pattern, name):
        raise ValueError(f"the API does not accept a tool named {name!r}: it must match {pattern}")
    if format == "anthropic":
        return {"name": name, "description": description, "input_schema": schema}
    function = {"name": name, "description": description, "parameters": schema}
    if format == "openai-responses":
        return {"type": "function", **function}
    return {"type": "function", "function": function}
