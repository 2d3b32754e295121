"""Harnesses: programs that bring a model's loop, tools and memory, run in environments.

Read ``sessions.py`` first: the session that a harness gets. ``loops.py`` has the loops, and
``environments.py`` offers any environment to a harness. Above: `openenv.capture` and
`openenv.rollouts.collect`. Below: the episode engine of `openenv.rollouts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rollouts.harness.bridge import SessionMCPBridge as SessionMCPBridge
    from openenv.rollouts.harness.environments import EnvironmentSession as EnvironmentSession
    from openenv.rollouts.harness.environments import EnvironmentSessions as EnvironmentSessions
    from openenv.rollouts.harness.loops import CLIHarnessAdapter as CLIHarnessAdapter
    from openenv.rollouts.harness.loops import HarnessAdapter as HarnessAdapter
    from openenv.rollouts.harness.loops import MCPHarnessAdapter as MCPHarnessAdapter
    from openenv.rollouts.harness.results import HarnessRolloutResult as HarnessRolloutResult
    from openenv.rollouts.harness.results import HarnessRunLimits as HarnessRunLimits
    from openenv.rollouts.harness.results import Message as Message
    from openenv.rollouts.harness.results import ModelStep as ModelStep
    from openenv.rollouts.harness.results import ModelStepResult as ModelStepResult
    from openenv.rollouts.harness.results import RolloutEvent as RolloutEvent
    from openenv.rollouts.harness.results import ToolResult as ToolResult
    from openenv.rollouts.harness.results import ToolTraceEntry as ToolTraceEntry
    from openenv.rollouts.harness.results import VerifyResult as VerifyResult
    from openenv.rollouts.harness.rollout_func import (
        build_harness_rollout_func as build_harness_rollout_func,
    )
    from openenv.rollouts.harness.sessions import LoopOwningSession as LoopOwningSession
    from openenv.rollouts.harness.sessions import ResourceSession as ResourceSession
    from openenv.rollouts.harness.sessions import ResourceSessionFactory as ResourceSessionFactory
    from openenv.rollouts.harness.sessions import StepEnvSessionAdapter as StepEnvSessionAdapter
    from openenv.rollouts.harness.sessions import ToolCallRejected as ToolCallRejected
    from openenv.rollouts.harness.sessions import TraceEntry as TraceEntry
    from openenv.rollouts.harness.sessions import TrainableSession as TrainableSession
    from openenv.rollouts.harness.sessions import UnknownSessionTool as UnknownSessionTool
    from openenv.rollouts.harness.training import TrainingTrace as TrainingTrace
    from openenv.rollouts.harness.training import TrainingTurn as TrainingTurn
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
