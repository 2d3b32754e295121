"""One address in front of many servers of environments: see `openenv gateway`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.gateway.gateway import Gateway
    from openenv.gateway.servers import Server, Servers, route_of

__all__ = ["Gateway", "Server", "Servers", "route_of"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.gateway.gateway": ["Gateway"],
        "openenv.gateway.servers": ["Server", "Servers", "route_of"],
    },
)
