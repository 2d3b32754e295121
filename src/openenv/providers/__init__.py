"""Starting isolated servers of environments, on whatever there is to run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.providers.base import ContainerProvider, Provider, RuntimeProvider
    from openenv.providers.process import ProcessLimits, ProcessProvider
    from openenv.providers.uv import UVProvider

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
