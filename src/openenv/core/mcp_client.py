"""The old path `openenv.core.mcp_client`; written by scripts/mirrors.py."""

from openenv.client.client import EnvClient as EnvClient
from openenv.client.mcp import GenericMCPObservation as GenericMCPObservation
from openenv.client.mcp import MCPClientBase as MCPClientBase
from openenv.client.mcp import MCPToolClient as MCPToolClient
from openenv.tools.types import CallToolAction as CallToolAction
from openenv.tools.types import CallToolObservation as CallToolObservation
from openenv.tools.types import ListToolsAction as ListToolsAction
from openenv.tools.types import ListToolsObservation as ListToolsObservation
from openenv.tools.types import Tool as Tool
from openenv.tools.types import ToolError as ToolError
from openenv.types import Observation as Observation
from openenv.types import State as State
from openenv.types import StepResult as StepResult

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
