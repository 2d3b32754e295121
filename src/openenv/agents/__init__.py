"""Agents inside environments: a harness with a loop of its own takes turns of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.agents.adapter import AgenticHarnessAdapter, response_of
    from openenv.agents.bridge import HarnessMCPBridge, build_bridge_server
    from openenv.agents.cli import CLIHarnessAgent
    from openenv.agents.config import HarnessConfig, HarnessTransport
    from openenv.agents.environment import HarnessAction, HarnessEnvironment
    from openenv.agents.errors import (
        HarnessBusyError,
        HarnessCrashedError,
        HarnessError,
        HarnessNotRunningError,
        HarnessOutputError,
        HarnessOutputTooLarge,
        HarnessStartupError,
        HarnessTurnError,
        HarnessTurnTimeoutError,
    )
    from openenv.agents.events import (
        HarnessClientMessage,
        HarnessEvent,
        HarnessEventType,
        HarnessProtocolError,
        HarnessResponse,
        events_to_metadata,
    )
    from openenv.agents.process import HarnessProcess
    from openenv.agents.running import ProcessAdapter
    from openenv.agents.served import MCPHarnessAgent
    from openenv.agents.stdio import StdioHarnessAdapter
    from openenv.agents.tools import resolve_tool_conflicts

__all__ = [
    "AgenticHarnessAdapter",
    "CLIHarnessAgent",
    "HarnessAction",
    "HarnessBusyError",
    "HarnessClientMessage",
    "HarnessConfig",
    "HarnessCrashedError",
    "HarnessEnvironment",
    "HarnessError",
    "HarnessEvent",
    "HarnessEventType",
    "HarnessMCPBridge",
    "HarnessNotRunningError",
    "HarnessOutputError",
    "HarnessOutputTooLarge",
    "HarnessProcess",
    "HarnessProtocolError",
    "HarnessResponse",
    "HarnessStartupError",
    "HarnessTransport",
    "HarnessTurnError",
    "HarnessTurnTimeoutError",
    "MCPHarnessAgent",
    "ProcessAdapter",
    "StdioHarnessAdapter",
    "build_bridge_server",
    "events_to_metadata",
    "resolve_tool_conflicts",
    "response_of",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.agents.adapter": ["AgenticHarnessAdapter", "response_of"],
        "openenv.agents.bridge": ["HarnessMCPBridge", "build_bridge_server"],
        "openenv.agents.cli": ["CLIHarnessAgent"],
        "openenv.agents.config": ["HarnessConfig", "HarnessTransport"],
        "openenv.agents.environment": ["HarnessAction", "HarnessEnvironment"],
        "openenv.agents.errors": [
            "HarnessBusyError",
            "HarnessCrashedError",
            "HarnessError",
            "HarnessNotRunningError",
            "HarnessOutputError",
            "HarnessOutputTooLarge",
            "HarnessStartupError",
            "HarnessTurnError",
            "HarnessTurnTimeoutError",
        ],
        "openenv.agents.events": [
            "HarnessClientMessage",
            "HarnessEvent",
            "HarnessEventType",
            "HarnessProtocolError",
            "HarnessResponse",
            "events_to_metadata",
        ],
        "openenv.agents.process": ["HarnessProcess"],
        "openenv.agents.running": ["ProcessAdapter"],
        "openenv.agents.served": ["MCPHarnessAgent"],
        "openenv.agents.stdio": ["StdioHarnessAdapter"],
        "openenv.agents.tools": ["resolve_tool_conflicts"],
    },
)
