"""The old path `openenv.mcp`; written by scripts/mirrors.py."""

from openenv.client.mcp import MCPToolClient as MCPToolClient
from openenv.tools.environment import MCPEnvironment as MCPEnvironment
from openenv.tools.functions import tool as tool
from openenv.tools.types import CallToolAction as CallToolAction
from openenv.tools.types import CallToolObservation as CallToolObservation
from openenv.tools.types import ListToolsAction as ListToolsAction
from openenv.tools.types import ListToolsObservation as ListToolsObservation
from openenv.tools.wrapped import wrap as wrap

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
