"""Agents inside environments: harnesses with an agent loop, driven turn by turn.

Below: `tools` (the environment's tools) and `environment`. Above: `server` (``WS /harness``) and
`capture`, which records the model calls of agents.

Read `environment.py` first (`HarnessEnvironment`: an episode and its turns), then `adapter.py` (the
interface to a harness) and `process_adapter.py` (adapters for processes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.agents.adapter import AgenticHarnessAdapter as AgenticHarnessAdapter
    from openenv.agents.adapter import build_response as build_response
    from openenv.agents.bridge import HarnessMCPBridge as HarnessMCPBridge
    from openenv.agents.bridge import build_bridge_server as build_bridge_server
    from openenv.agents.cli_agent import CLIHarnessAgent as CLIHarnessAgent
    from openenv.agents.config import HarnessConfig as HarnessConfig
    from openenv.agents.config import HarnessTransport as HarnessTransport
    from openenv.agents.environment import HarnessAction as HarnessAction
    from openenv.agents.environment import HarnessEnvironment as HarnessEnvironment
    from openenv.agents.environment import resolve_tool_conflicts as resolve_tool_conflicts
    from openenv.agents.errors import HarnessBusyError as HarnessBusyError
    from openenv.agents.errors import HarnessCrashedError as HarnessCrashedError
    from openenv.agents.errors import HarnessError as HarnessError
    from openenv.agents.errors import HarnessNotRunningError as HarnessNotRunningError
    from openenv.agents.errors import HarnessOutputError as HarnessOutputError
    from openenv.agents.errors import HarnessOutputTooLarge as HarnessOutputTooLarge
    from openenv.agents.errors import HarnessStartupError as HarnessStartupError
    from openenv.agents.errors import HarnessTurnError as HarnessTurnError
    from openenv.agents.errors import HarnessTurnTimeoutError as HarnessTurnTimeoutError
    from openenv.agents.events import HarnessClientMessage as HarnessClientMessage
    from openenv.agents.events import HarnessEvent as HarnessEvent
    from openenv.agents.events import HarnessEventType as HarnessEventType
    from openenv.agents.events import HarnessProtocolError as HarnessProtocolError
    from openenv.agents.events import HarnessResponse as HarnessResponse
    from openenv.agents.events import events_to_metadata as events_to_metadata
    from openenv.agents.mcp_agent import MCPHarnessAgent as MCPHarnessAgent
    from openenv.agents.process import HarnessProcess as HarnessProcess
    from openenv.agents.process_adapter import ProcessAdapter as ProcessAdapter
    from openenv.agents.stdio import StdioHarnessAdapter as StdioHarnessAdapter
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
