"""Tools by the Model Context Protocol (MCP): environments as servers, servers as environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.tools.environment import MCPEnvironment
    from openenv.tools.functions import tool
    from openenv.tools.progress import report_progress
    from openenv.tools.rendering import render_tools
    from openenv.tools.results import Image
    from openenv.tools.types import (
        CallToolAction,
        CallToolObservation,
        ListToolsAction,
        ListToolsObservation,
        Tool,
        ToolError,
        ToolErrorType,
    )
    from openenv.tools.wrapped import wrap

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
    "render_tools",
    "report_progress",
    "tool",
    "wrap",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.tools.environment": ["MCPEnvironment"],
        "openenv.tools.functions": ["tool"],
        "openenv.tools.progress": ["report_progress"],
        "openenv.tools.rendering": ["render_tools"],
        "openenv.tools.results": ["Image"],
        "openenv.tools.types": [
            "CallToolAction",
            "CallToolObservation",
            "ListToolsAction",
            "ListToolsObservation",
            "Tool",
            "ToolError",
            "ToolErrorType",
        ],
        "openenv.tools.wrapped": ["wrap"],
    },
)
