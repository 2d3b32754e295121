"""Driving environments: asynchronous, synchronous, or in the same process."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.client.client import EnvClient as EnvClient
    from openenv.client.generic import GenericAction as GenericAction
    from openenv.client.generic import GenericEnvClient as GenericEnvClient
    from openenv.client.mcp import GenericMCPObservation as GenericMCPObservation
    from openenv.client.mcp import MCPClientBase as MCPClientBase
    from openenv.client.mcp import MCPToolClient as MCPToolClient
    from openenv.client.sync import SyncEnvClient as SyncEnvClient
else:
    __getattr__, __dir__, __all__ = lazy(__name__, submodules=["background", "codec", "snapshots"])
