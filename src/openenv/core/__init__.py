"""The old path `openenv.core`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.client.client import EnvClient as EnvClient
    from openenv.client.generic import GenericAction as GenericAction
    from openenv.client.generic import GenericEnvClient as GenericEnvClient
    from openenv.client.mcp import MCPClientBase as MCPClientBase
    from openenv.client.mcp import MCPToolClient as MCPToolClient
    from openenv.client.sync import SyncEnvClient as SyncEnvClient
    from openenv.core.env_server import base_transforms as base_transforms
    from openenv.core.env_server import exceptions as exceptions
    from openenv.core.env_server import http_server as http_server
    from openenv.core.env_server import interfaces as interfaces
    from openenv.core.env_server import mcp_environment as mcp_environment
    from openenv.core.env_server import mcp_types as mcp_types
    from openenv.core.env_server import route_config as route_config
    from openenv.core.env_server import serialization as serialization
    from openenv.core.env_server import types as types
    from openenv.core.env_server import web_interface as web_interface
    from openenv.core.env_server.mcp_types import WSMCPMessage as WSMCPMessage
    from openenv.core.env_server.mcp_types import WSMCPResponse as WSMCPResponse
    from openenv.core.env_server.types import WSCloseMessage as WSCloseMessage
    from openenv.core.env_server.types import WSErrorCode as WSErrorCode
    from openenv.core.env_server.types import WSErrorResponse as WSErrorResponse
    from openenv.core.env_server.types import WSIncomingMessage as WSIncomingMessage
    from openenv.core.env_server.types import WSObservationResponse as WSObservationResponse
    from openenv.core.env_server.types import WSResetMessage as WSResetMessage
    from openenv.core.env_server.types import WSStateMessage as WSStateMessage
    from openenv.core.env_server.types import WSStateResponse as WSStateResponse
    from openenv.core.env_server.types import WSStepMessage as WSStepMessage
    from openenv.core.http_env_client import HTTPEnvClient as HTTPEnvClient
    from openenv.environment import CompositeTransform as CompositeTransform
    from openenv.environment import Environment as Environment
    from openenv.environment import NullTransform as NullTransform
    from openenv.environment import Transform as Transform
    from openenv.errors import ConcurrencyConfigurationError as ConcurrencyConfigurationError
    from openenv.errors import EnvironmentFactoryError as EnvironmentFactoryError
    from openenv.errors import OpenEnvError as OpenEnvError
    from openenv.errors import SessionCapacityError as SessionCapacityError
    from openenv.errors import SessionCreationError as SessionCreationError
    from openenv.errors import SessionNotFoundError as SessionNotFoundError
    from openenv.execution.manager import ConcurrencyConfig as ConcurrencyConfig
    from openenv.execution.manager import ServerCapacityStatus as ServerCapacityStatus
    from openenv.execution.session import SessionInfo as SessionInfo
    from openenv.protocol.http import GetTaskRangeRequest as GetTaskRangeRequest
    from openenv.protocol.http import GetTaskRequest as GetTaskRequest
    from openenv.protocol.http import HealthResponse as HealthResponse
    from openenv.protocol.http import HealthStatus as HealthStatus
    from openenv.protocol.http import ListTasksRequest as ListTasksRequest
    from openenv.protocol.http import NumTasksRequest as NumTasksRequest
    from openenv.protocol.http import SchemaResponse as SchemaResponse
    from openenv.protocol.serialization import deserialize_action as deserialize_action
    from openenv.protocol.serialization import (
        deserialize_action_with_preprocessing as deserialize_action_with_preprocessing,
    )
    from openenv.protocol.serialization import serialize_observation as serialize_observation
    from openenv.protocol.v0.messages import BaseMessage as BaseMessage
    from openenv.rewards.llm.anthropic import AnthropicClient as AnthropicClient
    from openenv.rewards.llm.client import LLMClient as LLMClient
    from openenv.rewards.llm.client import LLMResponse as LLMResponse
    from openenv.rewards.llm.client import ToolCall as ToolCall
    from openenv.rewards.llm.hosted import create_llm_client as create_llm_client
    from openenv.rewards.llm.openai import OpenAIClient as OpenAIClient
    from openenv.server.app import HTTPEnvServer as HTTPEnvServer
    from openenv.server.app import create_app as create_app
    from openenv.server.app import create_fastapi_app as create_fastapi_app
    from openenv.server.endpoints import GetEndpointConfig as GetEndpointConfig
    from openenv.server.web_interface import create_web_interface_app as create_web_interface_app
    from openenv.settings import ServerMode as ServerMode
    from openenv.tasks.provider import TaskProvider as TaskProvider
    from openenv.tools.environment import MCPEnvironment as MCPEnvironment
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
    from openenv.types import Message as Message
    from openenv.types import ModelTokenizer as ModelTokenizer
    from openenv.types import Observation as Observation
    from openenv.types import State as State
    from openenv.types import StepResult as StepResult
    from openenv.web.episode import WebInterfaceManager as WebInterfaceManager
    from openenv.core import auto_env as auto_env
    from openenv.core import client_types as client_types
    from openenv.core import containers as containers
    from openenv.core import env_client as env_client
    from openenv.core import env_server as env_server
    from openenv.core import environment as environment
    from openenv.core import evals as evals
    from openenv.core import generic_client as generic_client
    from openenv.core import harness as harness
    from openenv.core import http_env_client as http_env_client
    from openenv.core import llm_client as llm_client
    from openenv.core import mcp_client as mcp_client
    from openenv.core import rubrics as rubrics
    from openenv.core import sync_client as sync_client
    from openenv.core import tools as tools
    from openenv.core import utils as utils
else:
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core", "openenv.core.env_server"])
