"""The old path `openenv.core.env_server.mcp_types`; written by scripts/mirrors.py."""

from openenv.protocol.v0.messages import BaseMessage as BaseMessage
from openenv.protocol.v0.messages import MCPMessage as WSMCPMessage
from openenv.protocol.v0.messages import MCPResponse as WSMCPResponse
from openenv.tools.types import CallToolAction as CallToolAction
from openenv.tools.types import CallToolObservation as CallToolObservation
from openenv.tools.types import JsonRpcError as JsonRpcError
from openenv.tools.types import JsonRpcErrorCode as JsonRpcErrorCode
from openenv.tools.types import JsonRpcRequest as JsonRpcRequest
from openenv.tools.types import JsonRpcResponse as JsonRpcResponse
from openenv.tools.types import ListToolsAction as ListToolsAction
from openenv.tools.types import ListToolsObservation as ListToolsObservation
from openenv.tools.types import McpMethod as McpMethod
from openenv.tools.types import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES
from openenv.tools.types import Tool as Tool
from openenv.tools.types import ToolError as ToolError
from openenv.tools.types import ToolErrorType as ToolErrorType
from openenv.types import Action as Action
from openenv.types import Observation as Observation

__all__ = [
    "Action",
    "BaseMessage",
    "CallToolAction",
    "CallToolObservation",
    "JsonRpcError",
    "JsonRpcErrorCode",
    "JsonRpcRequest",
    "JsonRpcResponse",
    "ListToolsAction",
    "ListToolsObservation",
    "McpMethod",
    "Observation",
    "RESERVED_TOOL_NAMES",
    "Tool",
    "ToolError",
    "ToolErrorType",
    "WSMCPMessage",
    "WSMCPResponse",
]
