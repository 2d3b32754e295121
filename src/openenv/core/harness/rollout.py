"""The old path `openenv.core.harness.rollout`; written by scripts/mirrors.py."""

from openenv.harness.bridge import SessionMCPBridge as SessionMCPBridge
from openenv.harness.loops import CLIHarnessAdapter as CLIHarnessAdapter
from openenv.harness.loops import HarnessAdapter as HarnessAdapter
from openenv.harness.loops import MCPHarnessAdapter as MCPHarnessAdapter
from openenv.harness.results import HarnessRolloutResult as HarnessRolloutResult
from openenv.harness.results import HarnessRunLimits as HarnessRunLimits
from openenv.harness.results import Message as Message
from openenv.harness.results import ModelStep as ModelStep
from openenv.harness.results import ModelStepResult as ModelStepResult
from openenv.harness.results import RolloutEvent as RolloutEvent
from openenv.harness.results import ToolResult as ToolResult
from openenv.harness.results import ToolTraceEntry as ToolTraceEntry
from openenv.harness.results import VerifyResult as VerifyResult
from openenv.harness.rollout_func import build_harness_rollout_func as build_harness_rollout_func
from openenv.harness.sessions import LoopOwningSession as LoopOwningSession
from openenv.harness.sessions import ResourceSession as ResourceSession
from openenv.harness.sessions import ResourceSessionFactory as ResourceSessionFactory
from openenv.harness.sessions import StepEnvSessionAdapter as StepEnvSessionAdapter
from openenv.harness.sessions import TraceEntry as TraceEntry
from openenv.harness.sessions import TrainableSession as TrainableSession
from openenv.mcp.types import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES

__all__ = [
    "CLIHarnessAdapter",
    "HarnessAdapter",
    "HarnessRolloutResult",
    "HarnessRunLimits",
    "LoopOwningSession",
    "MCPHarnessAdapter",
    "Message",
    "ModelStep",
    "ModelStepResult",
    "RESERVED_TOOL_NAMES",
    "ResourceSession",
    "ResourceSessionFactory",
    "RolloutEvent",
    "SessionMCPBridge",
    "StepEnvSessionAdapter",
    "ToolResult",
    "ToolTraceEntry",
    "TraceEntry",
    "TrainableSession",
    "VerifyResult",
    "build_harness_rollout_func",
]
