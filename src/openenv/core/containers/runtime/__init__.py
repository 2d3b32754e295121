"""The old path `openenv.core.containers.runtime`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

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
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core.containers.runtime"])
