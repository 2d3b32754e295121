"""The old path `openenv.core.harness`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._lazy import lazy

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
    "TrainingTrace",
    "TrainingTurn",
    "VerifyResult",
    "build_harness_rollout_func",
]

if TYPE_CHECKING:
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
    from openenv.core.harness import capture as capture
    from openenv.core.harness import rollout as rollout
    from openenv.core.harness import training as training
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
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
        submodules=["capture", "rollout", "training"],
    )
