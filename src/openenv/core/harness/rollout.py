"""The old path `openenv.core.harness.rollout`; written by scripts/mirrors.py."""

from openenv.rollouts.harness.bridge import SessionMCPBridge as SessionMCPBridge
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
from openenv.rollouts.harness.sessions import TraceEntry as TraceEntry
from openenv.rollouts.harness.sessions import TrainableSession as TrainableSession
from openenv.tools.types import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
