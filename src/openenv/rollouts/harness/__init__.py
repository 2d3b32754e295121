"""Harnesses: programs that give a model its loop, its tools and its memory, run in environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rollouts.harness.bridge import SessionMCPBridge
    from openenv.rollouts.harness.environments import EnvironmentSession, EnvironmentSessions
    from openenv.rollouts.harness.loops import CLIHarnessAdapter, HarnessAdapter, MCPHarnessAdapter
    from openenv.rollouts.harness.results import (
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
    from openenv.rollouts.harness.rollout_func import build_harness_rollout_func
    from openenv.rollouts.harness.sessions import (
        LoopOwningSession,
        ResourceSession,
        ResourceSessionFactory,
        StepEnvSessionAdapter,
        ToolCallRejected,
        TraceEntry,
        TrainableSession,
        UnknownTool,
    )
    from openenv.rollouts.harness.training import TrainingTrace, TrainingTurn

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
        "openenv.rollouts.harness.bridge": ["SessionMCPBridge"],
        "openenv.rollouts.harness.environments": ["EnvironmentSession", "EnvironmentSessions"],
        "openenv.rollouts.harness.loops": [
            "CLIHarnessAdapter",
            "HarnessAdapter",
            "MCPHarnessAdapter",
        ],
        "openenv.rollouts.harness.results": [
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
        "openenv.rollouts.harness.rollout_func": ["build_harness_rollout_func"],
        "openenv.rollouts.harness.sessions": [
            "LoopOwningSession",
            "ResourceSession",
            "ResourceSessionFactory",
            "StepEnvSessionAdapter",
            "ToolCallRejected",
            "TraceEntry",
            "TrainableSession",
            "UnknownTool",
        ],
        "openenv.rollouts.harness.training": ["TrainingTrace", "TrainingTurn"],
    },
)
