"""Providers: start isolated servers of environments.

A provider runs servers as processes, containers, pods, actors or hosted sandboxes. Above:
`openenv.pool`, `openenv.client`, `openenv.images` and the CLI. Below: `openenv.execution` and
`openenv.sandbox`. Read ``base.py`` and ``servers.py`` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.providers.aca import ACASandboxProvider as ACASandboxProvider
    from openenv.providers.base import Capabilities as Capabilities
    from openenv.providers.base import ContainerProvider as ContainerProvider
    from openenv.providers.base import Provider as Provider
    from openenv.providers.base import RuntimeProvider as RuntimeProvider
    from openenv.providers.daytona import DaytonaProvider as DaytonaProvider
    from openenv.providers.docker import ContainerOptions as ContainerOptions
    from openenv.providers.docker import LocalDockerProvider as LocalDockerProvider
    from openenv.providers.hf import HFSandboxProvider as HFSandboxProvider
    from openenv.providers.kubernetes import KubernetesOptions as KubernetesOptions
    from openenv.providers.kubernetes import KubernetesProvider as KubernetesProvider
    from openenv.providers.modal import ModalProvider as ModalProvider
    from openenv.providers.process import ProcessLimits as ProcessLimits
    from openenv.providers.process import ProcessProvider as ProcessProvider
    from openenv.providers.ray import RayOptions as RayOptions
    from openenv.providers.ray import RayProvider as RayProvider
    from openenv.providers.ray import RayServer as RayServer
    from openenv.providers.servers import Executed as Executed
    from openenv.providers.servers import ImageProvider as ImageProvider
    from openenv.providers.servers import LaunchRequest as LaunchRequest
    from openenv.providers.servers import Server as Server
    from openenv.providers.servers import ServerProvider as ServerProvider
    from openenv.providers.swarm import DockerSwarmProvider as DockerSwarmProvider
    from openenv.providers.swarm import Service as Service
    from openenv.providers.swarm import SwarmOptions as SwarmOptions
    from openenv.providers.uv import UVProvider as UVProvider
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
