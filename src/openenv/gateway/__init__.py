"""One address in front of many servers of environments: see `openenv gateway`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.gateway.gateway import Gateway as Gateway
    from openenv.gateway.servers import Server as Server
    from openenv.gateway.servers import Servers as Servers
    from openenv.gateway.servers import route_of as route_of
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
