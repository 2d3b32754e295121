"""Agents inside environments: a harness with a loop of its own takes turns of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.harness.agents.adapter import AgenticHarnessAdapter, response_of
    from openenv.harness.agents.bridge import HarnessMCPBridge, build_bridge_server
    from openenv.harness.agents.cli import CLIHarnessAgent
    from openenv.harness.agents.config import HarnessConfig, HarnessTransport
    from openenv.harness.agents.environment import HarnessAction, HarnessEnvironment
    from openenv.harness.agents.errors import (
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
    from openenv.harness.agents.events import (
        HarnessClientMessage,
        HarnessEvent,
        HarnessEventType,
        HarnessProtocolError,
        HarnessResponse,
        events_to_metadata,
    )
    from openenv.harness.agents.process import HarnessProcess
    from openenv.harness.agents.running import ProcessAdapter
    from openenv.harness.agents.served import MCPHarnessAgent
    from openenv.harness.agents.stdio import StdioHarnessAdapter
    from openenv.harness.agents.tools import resolve_tool_conflicts

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
        "openenv.harness.agents.adapter": ["AgenticHarnessAdapter", "response_of"],
        "openenv.harness.agents.bridge": ["HarnessMCPBridge", "build_bridge_server"],
        "openenv.harness.agents.cli": ["CLIHarnessAgent"],
        "openenv.harness.agents.config": ["HarnessConfig", "HarnessTransport"],
        "openenv.harness.agents.environment": ["HarnessAction", "HarnessEnvironment"],
        "openenv.harness.agents.errors": [
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
        "openenv.harness.agents.events": [
            "HarnessClientMessage",
            "HarnessEvent",
            "HarnessEventType",
            "HarnessProtocolError",
            "HarnessResponse",
            "events_to_metadata",
        ],
        "openenv.harness.agents.process": ["HarnessProcess"],
        "openenv.harness.agents.running": ["ProcessAdapter"],
        "openenv.harness.agents.served": ["MCPHarnessAgent"],
        "openenv.harness.agents.stdio": ["StdioHarnessAdapter"],
        "openenv.harness.agents.tools": ["resolve_tool_conflicts"],
    },
)
