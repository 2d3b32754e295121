"""The old path `openenv.core.env_server.http_server`; written by scripts/mirrors.py."""

from openenv._internal.generics import overrides_method as overrides_method
from openenv.environment import Environment as Environment
from openenv.errors import ConcurrencyConfigurationError as ConcurrencyConfigurationError
from openenv.errors import EnvironmentFactoryError as EnvironmentFactoryError
from openenv.errors import ErrorCode as WSErrorCode
from openenv.errors import SessionCapacityError as SessionCapacityError
from openenv.execution.manager import ConcurrencyConfig as ConcurrencyConfig
from openenv.execution.manager import ServerCapacityStatus as ServerCapacityStatus
from openenv.execution.session import SessionInfo as SessionInfo
from openenv.protocol.http import GetTaskRangeRequest as GetTaskRangeRequest
from openenv.protocol.http import GetTaskRequest as GetTaskRequest
from openenv.protocol.http import HealthResponse as HealthResponse
from openenv.protocol.http import HealthStatus as HealthStatus
from openenv.protocol.http import ListTasksRequest as ListTasksRequest
from openenv.protocol.http import NumTasksRequest as NumTasksRequest
from openenv.protocol.http import ResetRequest as ResetRequest
from openenv.protocol.http import ResetResponse as ResetResponse
from openenv.protocol.http import SchemaResponse as SchemaResponse
from openenv.protocol.http import StepRequest as StepRequest
from openenv.protocol.http import StepResponse as StepResponse
from openenv.protocol.serialization import deserialize_action as deserialize_action
from openenv.protocol.serialization import serialize_observation as serialize_observation
from openenv.protocol.v0.messages import CloseMessage as WSCloseMessage
from openenv.protocol.v0.messages import ErrorResponse as WSErrorResponse
from openenv.protocol.v0.messages import MCPMessage as WSMCPMessage
from openenv.protocol.v0.messages import MCPResponse as WSMCPResponse
from openenv.protocol.v0.messages import ObservationResponse as WSObservationResponse
from openenv.protocol.v0.messages import ResetMessage as WSResetMessage
from openenv.protocol.v0.messages import StateMessage as WSStateMessage
from openenv.protocol.v0.messages import StateResponse as WSStateResponse
from openenv.protocol.v0.messages import StepMessage as WSStepMessage
from openenv.server.app import HTTPEnvServer as HTTPEnvServer
from openenv.server.app import create_app as create_app
from openenv.server.app import create_fastapi_app as create_fastapi_app
from openenv.server.endpoints import GetEndpointConfig as GetEndpointConfig
from openenv.server.endpoints import register_get_endpoints as register_get_endpoints
from openenv.settings import ServerMode as ServerMode
from openenv.tools.types import CallToolAction as CallToolAction
from openenv.tools.types import CallToolObservation as CallToolObservation
from openenv.tools.types import JsonRpcErrorCode as JsonRpcErrorCode
from openenv.tools.types import JsonRpcRequest as JsonRpcRequest
from openenv.tools.types import JsonRpcResponse as JsonRpcResponse
from openenv.tools.types import ListToolsAction as ListToolsAction
from openenv.tools.types import ListToolsObservation as ListToolsObservation
from openenv.tools.types import McpMethod as McpMethod
from openenv.types import Action as Action
from openenv.types import EnvironmentMetadata as EnvironmentMetadata
from openenv.types import Observation as Observation
from openenv.types import State as State

__all__ = [
    "Action",
    "CallToolAction",
    "CallToolObservation",
    "ConcurrencyConfig",
    "ConcurrencyConfigurationError",
    "Environment",
    "EnvironmentFactoryError",
    "EnvironmentMetadata",
    "GetEndpointConfig",
    "GetTaskRangeRequest",
    "GetTaskRequest",
    "HTTPEnvServer",
    "HealthResponse",
    "HealthStatus",
    "JsonRpcErrorCode",
    "JsonRpcRequest",
    "JsonRpcResponse",
    "ListTasksRequest",
    "ListToolsAction",
    "ListToolsObservation",
    "McpMethod",
    "NumTasksRequest",
    "Observation",
    "ResetRequest",
    "ResetResponse",
    "SchemaResponse",
    "ServerCapacityStatus",
    "ServerMode",
    "SessionCapacityError",
    "SessionInfo",
    "State",
    "StepRequest",
    "StepResponse",
    "WSCloseMessage",
    "WSErrorCode",
    "WSErrorResponse",
    "WSMCPMessage",
    "WSMCPResponse",
    "WSObservationResponse",
    "WSResetMessage",
    "WSStateMessage",
    "WSStateResponse",
    "WSStepMessage",
    "create_app",
    "create_fastapi_app",
    "deserialize_action",
    "overrides_method",
    "register_get_endpoints",
    "serialize_observation",
]
