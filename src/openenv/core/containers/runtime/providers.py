"""The old path `openenv.core.containers.runtime.providers`; written by scripts/mirrors.py."""

from openenv.providers.base import ContainerProvider as ContainerProvider
from openenv.providers.base import RuntimeProvider as RuntimeProvider

__all__ = ["ContainerProvider", "RuntimeProvider"]
