"""Pools of servers, which are started, monitored, replaced and scaled with demand.

Read `pool.py` first (leases and servers), then `control.py` (decisions, without I/O).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.pool.control import Load as Load
    from openenv.pool.control import Scaler as Scaler
    from openenv.pool.control import Starts as Starts
    from openenv.pool.control import Window as Window
    from openenv.pool.pool import EnvPool as EnvPool
    from openenv.pool.pool import PoolStats as PoolStats
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
