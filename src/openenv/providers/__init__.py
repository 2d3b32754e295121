"""Starting isolated servers of environments, on whatever there is to run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.providers.base import (
        Capabilities,
        ContainerProvider,
        Provider,
        RuntimeProvider,
    )
    from openenv.providers.docker import ContainerOptions, LocalDockerProvider
    from openenv.providers.process import ProcessLimits, ProcessProvider
    from openenv.providers.servers import Executed, Server, ServerProvider
    from openenv.providers.uv import UVProvider

__all__ = [
    "Capabilities",
    "ContainerOptions",
    "ContainerProvider",
    "Executed",
    "LocalDockerProvider",
    "ProcessLimits",
    "ProcessProvider",
    "Provider",
    "RuntimeProvider",
    "Server",
    "ServerProvider",
    "UVProvider",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.providers.base": [
            "Capabilities",
            "ContainerProvider",
            "Provider",
            "RuntimeProvider",
        ],
        "openenv.providers.docker": ["ContainerOptions", "LocalDockerProvider"],
        "openenv.providers.process": ["ProcessLimits", "ProcessProvider"],
        "openenv.providers.servers": ["Executed", "Server", "ServerProvider"],
        "openenv.providers.uv": ["UVProvider"],
    },
)
