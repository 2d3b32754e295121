"""The old path `openenv.core.containers.runtime.providers`; written by scripts/mirrors.py."""

from openenv.providers.base import ContainerProvider as ContainerProvider
from openenv.providers.base import RuntimeProvider as RuntimeProvider
from openenv.providers.docker import LocalDockerProvider as LocalDockerProvider

__all__ = ["ContainerProvider", "LocalDockerProvider", "RuntimeProvider"]
