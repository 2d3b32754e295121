"""The old path `openenv.core.env_server.mcp_environment`; written by scripts/mirrors.py."""

from openenv.environment import Environment as Environment
from openenv.tools.environment import MCPEnvironment as MCPEnvironment
from openenv.tools.environment import MCP_TOOL_CALL_TIMEOUT as MCP_TOOL_CALL_TIMEOUT
from openenv.tools.environment import VALID_MODES as VALID_MODES
from openenv.tools.environment import get_server_tools as get_server_tools
from openenv.tools.types import CallToolAction as CallToolAction
from openenv.tools.types import CallToolObservation as CallToolObservation
from openenv.tools.types import ListToolsAction as ListToolsAction
from openenv.tools.types import ListToolsObservation as ListToolsObservation
from openenv.tools.types import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES
from openenv.tools.types import Tool as Tool
from openenv.tools.types import ToolError as ToolError
from openenv.tools.types import ToolErrorType as ToolErrorType
from openenv.types import Action as Action
from openenv.types import Observation as Observation

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
