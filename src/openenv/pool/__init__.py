"""Sessions from many servers: started, watched, replaced, and as many as are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.pool.control import Load, Scaler, Starts, Window
    from openenv.pool.pool import EnvPool, PoolStats

__all__ = ["EnvPool", "Load", "PoolStats", "Scaler", "Starts", "Window"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.pool.control": ["Load", "Scaler", "Starts", "Window"],
        "openenv.pool.pool": ["EnvPool", "PoolStats"],
    },
)
