"""Clients of environments: `EnvClient`, `VectorEnv` and the connections that carry their sessions.

Rollouts, the pool, evaluations and the trainers' integrations build on this package. `protocol`
defines the messages that it sends.

Read `client.py` first (the calls of an `EnvClient`), then `session.py` (their order, time limits
and errors), then `connection.py` (the engine, which `session_group.py` uses for `VectorEnv` too).
`transports/` carries the frames. `hybrid.py` and `background.py` make the same calls work without
`await`, from any thread.
"""

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
