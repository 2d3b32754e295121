"""The environment with one tool, written for this package: the tool is a method."""

import os

from openenv import create_app
from openenv.tools import MCPEnvironment, tool


class EchoEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    NEVER_BLOCKS = True

    @tool
    def echo_message(self, message: str) -> str:
        """Echo back the message."""
        return message


app = create_app(EchoEnvironment, max_concurrent_envs=int(os.environ.get("ECHO_SESSIONS", "20000")))
