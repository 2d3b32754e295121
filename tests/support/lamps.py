"""An environment of tools for worker processes, which import this module."""

from __future__ import annotations

from openenv.tools import MCPEnvironment, tool


class Lamp(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._is_on = False

    @tool(mode="production")
    def switch(self) -> bool:
        """Switch it on, or off."""
        self._is_on = not self._is_on
        return self._is_on

    @tool(mode="simulation")
    def pretend(self) -> bool:
        """Switch nothing."""
        return self._is_on
