"""Driving environments: asynchronous, synchronous, or in the same process."""

from openenv.client.client import EnvClient
from openenv.client.generic import GenericAction, GenericEnvClient
from openenv.client.sync import SyncEnvClient

__all__ = ["EnvClient", "GenericAction", "GenericEnvClient", "SyncEnvClient"]
