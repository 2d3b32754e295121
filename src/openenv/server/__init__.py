"""Serves environments over HTTP, WebSocket and MCP.

Above: the CLI. Below: `openenv.execution`, which owns sessions and connections; a module here only
carries bytes to it and back. ``app.py`` composes the routes and, on request, mounts the web page.
Read ``app.py`` first, then ``socket.py`` and ``websocket.py`` (the way of a step), ``http.py``, and
``mcp/``.
"""

from openenv.execution.principal import Key, KeyLimits, Role
from openenv.server.app import HTTPEnvServer, create_app, create_fastapi_app
from openenv.settings import ServerMode

__all__ = [
    "HTTPEnvServer",
    "Key",
    "KeyLimits",
    "Role",
    "ServerMode",
    "create_app",
    "create_fastapi_app",
]
