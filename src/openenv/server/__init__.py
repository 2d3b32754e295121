"""Serves environments over HTTP, WebSocket and MCP.

The CLI uses this package. `openenv.execution` owns sessions and connections; the modules here only
carry bytes to it and back. ``app.py`` composes the routes and can mount the web page. Read
``app.py`` first, then ``socket.py`` and ``websocket.py`` (the path of a step), ``http.py``, and
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
