"""Serving environments: pumps between a transport and a session, and nothing else."""

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
