"""The old path `openenv.core.harness`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.agents.adapter import AgenticHarnessAdapter as AgenticHarnessAdapter
    from openenv.agents.bridge import HarnessMCPBridge as HarnessMCPBridge
    from openenv.agents.bridge import build_bridge_server as build_bridge_server
    from openenv.agents.config import HarnessConfig as HarnessConfig
    from openenv.agents.config import HarnessTransport as HarnessTransport
    from openenv.agents.environment import HarnessAction as HarnessAction
    from openenv.agents.environment import HarnessEnvironment as HarnessEnvironment
    from openenv.agents.environment import resolve_tool_conflicts as resolve_tool_conflicts
    from openenv.agents.errors import HarnessError as HarnessError
    from openenv.agents.errors import HarnessNotRunningError as HarnessNotRunningError
    from openenv.agents.errors import HarnessStartupError as HarnessStartupError
    from openenv.agents.errors import HarnessTurnTimeoutError as HarnessTurnTimeoutError
    from openenv.agents.events import HarnessClientMessage as HarnessClientMessage
    from openenv.agents.events import HarnessEvent as HarnessEvent
    from openenv.agents.events import HarnessEventType as HarnessEventType
    from openenv.agents.events import HarnessResponse as HarnessResponse
    from openenv.agents.events import events_to_metadata as events_to_metadata
    from openenv.agents.process import HarnessProcess as HarnessProcess
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
    from openenv.rollouts.harness.training import TrainingTrace as TrainingTrace
    from openenv.rollouts.harness.training import TrainingTurn as TrainingTurn
    from openenv.tools.types import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES
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
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core.harness"])
