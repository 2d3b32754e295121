"""The old path `openenv.core.env_server.types`; written by scripts/mirrors.py."""

from openenv.errors import ErrorCode as WSErrorCode
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
from openenv.protocol.v0.messages import BaseMessage as BaseMessage
from openenv.protocol.v0.messages import CloseMessage as WSCloseMessage
from openenv.protocol.v0.messages import ErrorResponse as WSErrorResponse
from openenv.protocol.v0.messages import IncomingMessage as WSIncomingMessage
from openenv.protocol.v0.messages import ObservationResponse as WSObservationResponse
from openenv.protocol.v0.messages import ResetMessage as WSResetMessage
from openenv.protocol.v0.messages import StateMessage as WSStateMessage
from openenv.protocol.v0.messages import StateResponse as WSStateResponse
from openenv.protocol.v0.messages import StepMessage as WSStepMessage
from openenv.settings import ServerMode as ServerMode
from openenv.types import Action as Action
from openenv.types import CodeExecResult as CodeExecResult
from openenv.types import EnvironmentMetadata as EnvironmentMetadata
from openenv.types import Observation as Observation
from openenv.types import Scalar as Scalar
from openenv.types import State as State

__all__ = [
    "Action",
    "BaseMessage",
    "CodeExecResult",
    "ConcurrencyConfig",
    "EnvironmentMetadata",
    "GetTaskRangeRequest",
    "GetTaskRequest",
    "HealthResponse",
    "HealthStatus",
    "ListTasksRequest",
    "NumTasksRequest",
    "Observation",
    "ResetRequest",
    "ResetResponse",
    "Scalar",
    "SchemaResponse",
    "ServerCapacityStatus",
    "ServerMode",
    "SessionInfo",
    "State",
    "StepRequest",
    "StepResponse",
    "WSCloseMessage",
    "WSErrorCode",
    "WSErrorResponse",
    "WSIncomingMessage",
    "WSObservationResponse",
    "WSResetMessage",
    "WSStateMessage",
    "WSStateResponse",
    "WSStepMessage",
]
