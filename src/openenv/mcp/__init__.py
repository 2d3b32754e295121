"""Tools by the Model Context Protocol (MCP): environments as servers, servers as environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.mcp.environment import MCPEnvironment
    from openenv.mcp.functions import tool
    from openenv.mcp.results import Image
    from openenv.mcp.types import (
        CallToolAction,
        CallToolObservation,
        ListToolsAction,
        ListToolsObservation,
        Tool,
        ToolError,
        ToolErrorType,
    )
    from openenv.mcp.wrapped import wrap

__all__ = [
    "CallToolAction",
    "CallToolObservation",
    "Image",
    "ListToolsAction",
    "ListToolsObservation",
    "MCPEnvironment",
    "Tool",
    "ToolError",
    "ToolErrorType",
    "tool",
    "wrap",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.mcp.environment": ["MCPEnvironment"],
        "openenv.mcp.functions": ["tool"],
        "openenv.mcp.results": ["Image"],
        "openenv.mcp.types": [
            "CallToolAction",
            "CallToolObservation",
            "ListToolsAction",
            "ListToolsObservation",
            "Tool",
            "ToolError",
            "ToolErrorType",
        ],
        "openenv.mcp.wrapped": ["wrap"],
    },
)
