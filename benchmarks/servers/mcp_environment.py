"""An environment with one tool of a FastMCP server: one file, served by both packages."""

import os
from typing import Any
from uuid import uuid4

from fastmcp import FastMCP

from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class EchoEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server: FastMCP[Any] = FastMCP("echo")

        @server.tool
        def echo_message(message: str) -> str:
            """Echo back the message."""
            return message

        super().__init__(server)
        self._state = State(episode_id=str(uuid4()))

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        self._state = State(episode_id=episode_id or str(uuid4()))
        return Observation()

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return self._state


app = create_fastapi_app(
    EchoEnvironment,
    CallToolAction,
    CallToolObservation,
    max_concurrent_envs=int(os.environ.get("ECHO_SESSIONS", "20000")),
    env_name="echo",
)
