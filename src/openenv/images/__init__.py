"""Builds container images of environments; the library behind `openenv build`.

from openenv.images import build, find_builder, read_plan

`read_plan` reads an environment's directory, `build` stages a context, locks the packages and runs
an engine. Above: the CLI, `openenv.hub` and `openenv.validation`. Below: `openenv.manifest`. Read
``build.py`` first.
"""

from __future__ import annotations

from openenv.images.build import BuiltImage, build, push
from openenv.images.engines import BuildOptions, Engine, find_builder
from openenv.images.errors import BuildError, EngineError
from openenv.images.locking import LockOptions
from openenv.images.plan import BuildPlan, default_tags, read_plan

__all__ = [
    "BuildError",
    "BuiltImage",
    "Engine",
    "EngineError",
    "LockOptions",
    "BuildOptions",
    "BuildPlan",
    "build",
    "default_tags",
    "find_builder",
    "push",
    "read_plan",
]
