"""Tools of the Model Context Protocol (MCP): environments of tools, and MCP servers as
environments.

This package uses `environment`, `types`, and for code mode `sandbox`. It is used by `execution` and
`server.mcp`, which offer an environment's tools to agents, and by `client.mcp`, which calls them.

Read `types.py` first (actions and observations), then `environment.py` (`MCPEnvironment`) and
`functions.py` (functions as tools). `wrapped.py` (`wrap`) makes environments from existing MCP
servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.tools.environment import MCPEnvironment as MCPEnvironment
    from openenv.tools.functions import tool as tool
    from openenv.tools.progress import report_progress as report_progress
    from openenv.tools.rendering import render_tools as render_tools
    from openenv.tools.results import Image as Image
    from openenv.tools.types import CallToolAction as CallToolAction
    from openenv.tools.types import CallToolObservation as CallToolObservation
    from openenv.tools.types import ListToolsAction as ListToolsAction
    from openenv.tools.types import ListToolsObservation as ListToolsObservation
    from openenv.tools.types import Tool as Tool
    from openenv.tools.types import ToolError as ToolError
    from openenv.tools.types import ToolErrorType as ToolErrorType
    from openenv.tools.wrapped import wrap as wrap
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
