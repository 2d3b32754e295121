"""Images of environments: `openenv build`, for programs.

from openenv.images import build, find_builder, read_plan
"""

from __future__ import annotations

from openenv.images.build import Built, build, push
from openenv.images.engines import Engine, Options, find_builder
from openenv.images.errors import BuildError, EngineError
from openenv.images.locking import Locking
from openenv.images.plan import Plan, default_tags, read_plan

__all__ = [
    "BuildError",
    "Built",
    "Engine",
    "EngineError",
    "Locking",
    "Options",
    "Plan",
    "build",
    "default_tags",
    "find_builder",
    "push",
    "read_plan",
]
