"""The old path `openenv.core.env_server.mcp_types`; written by scripts/mirrors.py."""

from openenv.mcp.types import CallToolAction as CallToolAction
from openenv.mcp.types import CallToolObservation as CallToolObservation
from openenv.mcp.types import JsonRpcError as JsonRpcError
from openenv.mcp.types import JsonRpcErrorCode as JsonRpcErrorCode
from openenv.mcp.types import JsonRpcRequest as JsonRpcRequest
from openenv.mcp.types import JsonRpcResponse as JsonRpcResponse
from openenv.mcp.types import ListToolsAction as ListToolsAction
from openenv.mcp.types import ListToolsObservation as ListToolsObservation
from openenv.mcp.types import McpMethod as McpMethod
from openenv.mcp.types import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES
from openenv.mcp.types import Tool as Tool
from openenv.mcp.types import ToolError as ToolError
from openenv.mcp.types import ToolErrorType as ToolErrorType
from openenv.protocol.frames import BaseMessage as BaseMessage
from openenv.protocol.frames import MCPMessage as WSMCPMessage
from openenv.protocol.frames import MCPResponse as WSMCPResponse
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
