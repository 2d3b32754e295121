"""The old path `openenv.core.generic_client`; written by scripts/mirrors.py."""

from openenv.client.generic import GenericAction as GenericAction
from openenv.client.generic import GenericEnvClient as GenericEnvClient

__all__ = ["GenericAction", "GenericEnvClient"]
