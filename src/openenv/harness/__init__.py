"""Harnesses: programs that give a model its loop, its tools and its memory, run in environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.harness.bridge import SessionMCPBridge
    from openenv.harness.environments import EnvironmentSession, EnvironmentSessions
    from openenv.harness.loops import CLIHarnessAdapter, HarnessAdapter, MCPHarnessAdapter
    from openenv.harness.results import (
        HarnessRolloutResult,
        HarnessRunLimits,
        Message,
        ModelStep,
        ModelStepResult,
        RolloutEvent,
        ToolResult,
        ToolTraceEntry,
        VerifyResult,
    )
    from openenv.harness.rollout_func import build_harness_rollout_func
    from openenv.harness.sessions import (
        LoopOwningSession,
        ResourceSession,
        ResourceSessionFactory,
        StepEnvSessionAdapter,
        ToolCallRejected,
        TraceEntry,
        TrainableSession,
        UnknownTool,
    )
    from openenv.harness.training import TrainingTrace, TrainingTurn

__all__ = [
    "CLIHarnessAdapter",
    "EnvironmentSession",
    "EnvironmentSessions",
    "HarnessAdapter",
    "HarnessRolloutResult",
    "HarnessRunLimits",
    "LoopOwningSession",
    "MCPHarnessAdapter",
    "Message",
    "ModelStep",
    "ModelStepResult",
    "ResourceSession",
    "ResourceSessionFactory",
    "RolloutEvent",
    "SessionMCPBridge",
    "StepEnvSessionAdapter",
    "ToolCallRejected",
    "ToolResult",
    "ToolTraceEntry",
    "TraceEntry",
    "TrainableSession",
    "TrainingTrace",
    "TrainingTurn",
    "UnknownTool",
    "VerifyResult",
    "build_harness_rollout_func",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.harness.bridge": ["SessionMCPBridge"],
        "openenv.harness.environments": ["EnvironmentSession", "EnvironmentSessions"],
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
            "ToolCallRejected",
            "TraceEntry",
            "TrainableSession",
            "UnknownTool",
        ],
        "openenv.harness.training": ["TrainingTrace", "TrainingTurn"],
    },
)
