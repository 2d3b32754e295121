"""The old path `openenv.core.containers.runtime`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

__all__ = [
    "ContainerProvider",
    "DockerSwarmProvider",
    "KubernetesProvider",
    "LocalDockerProvider",
    "RuntimeProvider",
    "UVProvider",
]

if TYPE_CHECKING:
    from openenv.providers.base import ContainerProvider as ContainerProvider
    from openenv.providers.base import RuntimeProvider as RuntimeProvider
    from openenv.providers.docker import LocalDockerProvider as LocalDockerProvider
    from openenv.providers.kubernetes import KubernetesProvider as KubernetesProvider
    from openenv.providers.swarm import DockerSwarmProvider as DockerSwarmProvider
    from openenv.providers.uv import UVProvider as UVProvider
    from openenv.core.containers.runtime import aca_provider as aca_provider
    from openenv.core.containers.runtime import daytona_provider as daytona_provider
    from openenv.core.containers.runtime import hf_sandbox_provider as hf_sandbox_provider
    from openenv.core.containers.runtime import modal_provider as modal_provider
    from openenv.core.containers.runtime import providers as providers
    from openenv.core.containers.runtime import uv_provider as uv_provider
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "openenv.providers.base": ["ContainerProvider", "RuntimeProvider"],
            "openenv.providers.docker": ["LocalDockerProvider"],
            "openenv.providers.kubernetes": ["KubernetesProvider"],
            "openenv.providers.swarm": ["DockerSwarmProvider"],
            "openenv.providers.uv": ["UVProvider"],
        },
        submodules=[
            "aca_provider",
            "daytona_provider",
            "hf_sandbox_provider",
            "modal_provider",
            "providers",
            "uv_provider",
        ],
    )
