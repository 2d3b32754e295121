"""The old path `openenv.core.env_server.http_server`; written by scripts/mirrors.py."""

from openenv.server.app import HTTPEnvServer as HTTPEnvServer
from openenv.server.app import create_app as create_app
from openenv.server.app import create_fastapi_app as create_fastapi_app

__all__ = ["HTTPEnvServer", "create_app", "create_fastapi_app"]
