"""The old path `openenv.core.http_env_client`; written by scripts/mirrors.py."""

from openenv.client.client import EnvClient as HTTPEnvClient
from openenv.types import StepResult as StepResult

__all__ = [
    "HTTPEnvClient",
    "StepResult",
]
