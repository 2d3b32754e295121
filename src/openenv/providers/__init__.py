"""Starting isolated servers of environments, on whatever there is to run them."""

from __future__ import annotations

from openenv._lazy import lazy

__all__ = [
    "ContainerProvider",
    "ProcessLimits",
    "ProcessProvider",
    "Provider",
    "RuntimeProvider",
    "UVProvider",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.providers.base": ["ContainerProvider", "Provider", "RuntimeProvider"],
        "openenv.providers.process": ["ProcessLimits", "ProcessProvider"],
        "openenv.providers.uv": ["UVProvider"],
    },
)
