"""The old path `openenv.core.env_server.route_config`; written by scripts/mirrors.py."""

from openenv.server.endpoints import GetEndpointConfig as GetEndpointConfig
from openenv.server.endpoints import register_get_endpoints as register_get_endpoints

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
