"""Driving environments: asynchronous, synchronous, or in the same process."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.client.client import EnvClient
    from openenv.client.generic import GenericAction, GenericEnvClient
    from openenv.client.mcp import GenericMCPObservation, MCPClientBase, MCPToolClient
    from openenv.client.sync import SyncEnvClient

__all__ = [
    "EnvClient",
    "GenericAction",
    "GenericEnvClient",
    "GenericMCPObservation",
    "MCPClientBase",
    "MCPToolClient",
    "SyncEnvClient",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.client.client": ["EnvClient"],
        "openenv.client.generic": ["GenericAction", "GenericEnvClient"],
        "openenv.client.mcp": ["GenericMCPObservation", "MCPClientBase", "MCPToolClient"],
        "openenv.client.sync": ["SyncEnvClient"],
    },
    submodules=[
        "background",
        "codec",
        "snapshots",
    ],  # taken from here
)
