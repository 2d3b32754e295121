"""The old path `openenv.core.containers.runtime`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._lazy import lazy

__all__ = ["ContainerProvider", "LocalDockerProvider", "RuntimeProvider", "UVProvider"]

if TYPE_CHECKING:
    from openenv.providers.base import ContainerProvider as ContainerProvider
    from openenv.providers.base import RuntimeProvider as RuntimeProvider
    from openenv.providers.docker import LocalDockerProvider as LocalDockerProvider
    from openenv.providers.uv import UVProvider as UVProvider
    from openenv.core.containers.runtime import providers as providers
    from openenv.core.containers.runtime import uv_provider as uv_provider
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "openenv.providers.base": ["ContainerProvider", "RuntimeProvider"],
            "openenv.providers.docker": ["LocalDockerProvider"],
            "openenv.providers.uv": ["UVProvider"],
        },
        submodules=["providers", "uv_provider"],
    )
