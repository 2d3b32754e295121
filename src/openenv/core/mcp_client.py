"""The old path `openenv.core.mcp_client`; written by scripts/mirrors.py."""

from openenv.client.client import EnvClient as EnvClient
from openenv.mcp.client import GenericMCPObservation as GenericMCPObservation
from openenv.mcp.client import MCPClientBase as MCPClientBase
from openenv.mcp.client import MCPToolClient as MCPToolClient
from openenv.mcp.types import CallToolAction as CallToolAction
from openenv.mcp.types import CallToolObservation as CallToolObservation
from openenv.mcp.types import ListToolsAction as ListToolsAction
from openenv.mcp.types import ListToolsObservation as ListToolsObservation
from openenv.mcp.types import Tool as Tool
from openenv.mcp.types import ToolError as ToolError
from openenv.types import Observation as Observation
from openenv.types import State as State
from openenv.types import StepResult as StepResult

__all__ = [
    "CallToolAction",
    "CallToolObservation",
    "EnvClient",
    "GenericMCPObservation",
    "ListToolsAction",
    "ListToolsObservation",
    "MCPClientBase",
    "MCPToolClient",
    "Observation",
    "State",
    "StepResult",
    "Tool",
    "ToolError",
]
