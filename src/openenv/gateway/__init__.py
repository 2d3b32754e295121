"""A gateway: a single address in front of many servers; see ``openenv gateway``.

Read `gateway.py` first (requests), then `backends.py` (the choice of a server) and `splice.py`
(bytes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.gateway.backends import Backend as Backend
    from openenv.gateway.backends import Backends as Backends
    from openenv.gateway.backends import route_of as route_of
    from openenv.gateway.gateway import Gateway as Gateway
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
