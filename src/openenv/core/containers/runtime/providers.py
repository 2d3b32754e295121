"""The old path `openenv.core.containers.runtime.providers`; written by scripts/mirrors.py."""

from openenv.providers.base import ContainerProvider as ContainerProvider
from openenv.providers.base import RuntimeProvider as RuntimeProvider
from openenv.providers.docker import LocalDockerProvider as LocalDockerProvider
from openenv.providers.kubernetes import KubernetesProvider as KubernetesProvider
from openenv.providers.swarm import DockerSwarmProvider as DockerSwarmProvider

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
