"""Tools by the Model Context Protocol (MCP): environments as servers, servers as environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.mcp.client import GenericMCPObservation, MCPClientBase, MCPToolClient
    from openenv.mcp.environment import MCPEnvironment
    from openenv.mcp.functions import tool
    from openenv.mcp.progress import report_progress
    from openenv.mcp.rendering import render_tools
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
    "GenericMCPObservation",
    "Image",
    "ListToolsAction",
    "ListToolsObservation",
    "MCPClientBase",
    "MCPEnvironment",
    "MCPToolClient",
    "Tool",
    "ToolError",
    "ToolErrorType",
    "render_tools",
    "report_progress",
    "tool",
    "wrap",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.mcp.client": ["GenericMCPObservation", "MCPClientBase", "MCPToolClient"],
        "openenv.mcp.environment": ["MCPEnvironment"],
        "openenv.mcp.functions": ["tool"],
        "openenv.mcp.progress": ["report_progress"],
        "openenv.mcp.rendering": ["render_tools"],
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
