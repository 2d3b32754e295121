"""Starting isolated servers of environments, on whatever there is to run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.providers.aca import ACASandboxProvider
    from openenv.providers.base import Capabilities, ContainerProvider, Provider, RuntimeProvider
    from openenv.providers.daytona import DaytonaProvider
    from openenv.providers.docker import ContainerOptions, LocalDockerProvider
    from openenv.providers.hf import HFSandboxProvider
    from openenv.providers.kubernetes import KubernetesOptions, KubernetesProvider
    from openenv.providers.modal import ModalProvider
    from openenv.providers.process import ProcessLimits, ProcessProvider
    from openenv.providers.ray import RayOptions, RayProvider, RayServer
    from openenv.providers.servers import Executed, ImageProvider, Server, ServerProvider
    from openenv.providers.swarm import DockerSwarmProvider, Service, SwarmOptions
    from openenv.providers.uv import UVProvider

__all__ = [
    "ACASandboxProvider",
    "Capabilities",
    "ContainerOptions",
    "ContainerProvider",
    "DaytonaProvider",
    "DockerSwarmProvider",
    "Executed",
    "HFSandboxProvider",
    "ImageProvider",
    "KubernetesOptions",
    "KubernetesProvider",
    "LocalDockerProvider",
    "ModalProvider",
    "ProcessLimits",
    "ProcessProvider",
    "Provider",
    "RayOptions",
    "RayProvider",
    "RayServer",
    "RuntimeProvider",
    "Server",
    "ServerProvider",
    "Service",
    "SwarmOptions",
    "UVProvider",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.providers.aca": ["ACASandboxProvider"],
        "openenv.providers.base": [
            "Capabilities",
            "ContainerProvider",
            "Provider",
            "RuntimeProvider",
        ],
        "openenv.providers.daytona": ["DaytonaProvider"],
        "openenv.providers.docker": ["ContainerOptions", "LocalDockerProvider"],
        "openenv.providers.hf": ["HFSandboxProvider"],
        "openenv.providers.kubernetes": ["KubernetesOptions", "KubernetesProvider"],
        "openenv.providers.modal": ["ModalProvider"],
        "openenv.providers.process": ["ProcessLimits", "ProcessProvider"],
        "openenv.providers.ray": ["RayOptions", "RayProvider", "RayServer"],
        "openenv.providers.servers": ["Executed", "ImageProvider", "Server", "ServerProvider"],
        "openenv.providers.swarm": ["DockerSwarmProvider", "Service", "SwarmOptions"],
        "openenv.providers.uv": ["UVProvider"],
    },
)
