"""The old path `openenv.auto._discovery`; written by scripts/mirrors.py."""

from openenv.hub.discovery import EnvironmentDiscovery as EnvironmentDiscovery
from openenv.hub.discovery import EnvironmentInfo as EnvironmentInfo
from openenv.hub.discovery import get_discovery as get_discovery
from openenv.hub.discovery import reset_discovery as reset_discovery

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
