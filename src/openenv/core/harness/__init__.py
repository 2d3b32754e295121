"""The old path `openenv.core.harness`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._lazy import lazy

__all__ = [
    "AgenticHarnessAdapter",
    "CLIHarnessAdapter",
    "HarnessAction",
    "HarnessAdapter",
    "HarnessClientMessage",
    "HarnessConfig",
    "HarnessEnvironment",
    "HarnessError",
    "HarnessEvent",
    "HarnessEventType",
    "HarnessMCPBridge",
    "HarnessNotRunningError",
    "HarnessProcess",
    "HarnessResponse",
    "HarnessRolloutResult",
    "HarnessRunLimits",
    "HarnessStartupError",
    "HarnessTransport",
    "HarnessTurnTimeoutError",
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
    "TrainingTrace",
    "TrainingTurn",
    "VerifyResult",
    "build_bridge_server",
    "build_harness_rollout_func",
    "events_to_metadata",
    "resolve_tool_conflicts",
]

if TYPE_CHECKING:
    from openenv.harness.agents.adapter import AgenticHarnessAdapter as AgenticHarnessAdapter
    from openenv.harness.agents.bridge import HarnessMCPBridge as HarnessMCPBridge
    from openenv.harness.agents.bridge import build_bridge_server as build_bridge_server
    from openenv.harness.agents.config import HarnessConfig as HarnessConfig
    from openenv.harness.agents.config import HarnessTransport as HarnessTransport
    from openenv.harness.agents.environment import HarnessAction as HarnessAction
    from openenv.harness.agents.environment import HarnessEnvironment as HarnessEnvironment
    from openenv.harness.agents.errors import HarnessError as HarnessError
    from openenv.harness.agents.errors import HarnessNotRunningError as HarnessNotRunningError
    from openenv.harness.agents.errors import HarnessStartupError as HarnessStartupError
    from openenv.harness.agents.errors import HarnessTurnTimeoutError as HarnessTurnTimeoutError
    from openenv.harness.agents.events import HarnessClientMessage as HarnessClientMessage
    from openenv.harness.agents.events import HarnessEvent as HarnessEvent
    from openenv.harness.agents.events import HarnessEventType as HarnessEventType
    from openenv.harness.agents.events import HarnessResponse as HarnessResponse
    from openenv.harness.agents.events import events_to_metadata as events_to_metadata
    from openenv.harness.agents.process import HarnessProcess as HarnessProcess
    from openenv.harness.agents.tools import resolve_tool_conflicts as resolve_tool_conflicts
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
    from openenv.harness.rollout_func import (
        build_harness_rollout_func as build_harness_rollout_func,
    )
    from openenv.harness.sessions import LoopOwningSession as LoopOwningSession
    from openenv.harness.sessions import ResourceSession as ResourceSession
    from openenv.harness.sessions import ResourceSessionFactory as ResourceSessionFactory
    from openenv.harness.sessions import StepEnvSessionAdapter as StepEnvSessionAdapter
    from openenv.harness.sessions import TraceEntry as TraceEntry
    from openenv.harness.sessions import TrainableSession as TrainableSession
    from openenv.harness.training import TrainingTrace as TrainingTrace
    from openenv.harness.training import TrainingTurn as TrainingTurn
    from openenv.mcp.types import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES
    from openenv.core.harness import adapter as adapter
    from openenv.core.harness import bridge as bridge
    from openenv.core.harness import capture as capture
    from openenv.core.harness import collect as collect
    from openenv.core.harness import config as config
    from openenv.core.harness import environment as environment
    from openenv.core.harness import events as events
    from openenv.core.harness import process as process
    from openenv.core.harness import rollout as rollout
    from openenv.core.harness import tools as tools
    from openenv.core.harness import training as training
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "openenv.harness.agents.adapter": ["AgenticHarnessAdapter"],
            "openenv.harness.agents.bridge": ["HarnessMCPBridge", "build_bridge_server"],
            "openenv.harness.agents.config": ["HarnessConfig", "HarnessTransport"],
            "openenv.harness.agents.environment": ["HarnessAction", "HarnessEnvironment"],
            "openenv.harness.agents.errors": [
                "HarnessError",
                "HarnessNotRunningError",
                "HarnessStartupError",
                "HarnessTurnTimeoutError",
            ],
            "openenv.harness.agents.events": [
                "HarnessClientMessage",
                "HarnessEvent",
                "HarnessEventType",
                "HarnessResponse",
                "events_to_metadata",
            ],
            "openenv.harness.agents.process": ["HarnessProcess"],
            "openenv.harness.agents.tools": ["resolve_tool_conflicts"],
            "openenv.harness.bridge": ["SessionMCPBridge"],
            "openenv.harness.loops": ["CLIHarnessAdapter", "HarnessAdapter", "MCPHarnessAdapter"],
            "openenv.harness.results": [
                "HarnessRolloutResult",
                "HarnessRunLimits",
                "Message",
                "ModelStep",
                "ModelStepResult",
                "RolloutEvent",
                "ToolResult",
                "ToolTraceEntry",
                "VerifyResult",
            ],
            "openenv.harness.rollout_func": ["build_harness_rollout_func"],
            "openenv.harness.sessions": [
                "LoopOwningSession",
                "ResourceSession",
                "ResourceSessionFactory",
                "StepEnvSessionAdapter",
                "TraceEntry",
                "TrainableSession",
            ],
            "openenv.harness.training": ["TrainingTrace", "TrainingTurn"],
            "openenv.mcp.types": ["RESERVED_TOOL_NAMES"],
        },
        submodules=[
            "adapter",
            "bridge",
            "capture",
            "collect",
            "config",
            "environment",
            "events",
            "process",
            "rollout",
            "tools",
            "training",
        ],
    )
