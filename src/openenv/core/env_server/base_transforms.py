"""The old path `openenv.core.env_server.base_transforms`; written by scripts/mirrors.py."""

from openenv.environment import CompositeTransform as CompositeTransform
from openenv.environment import NullTransform as NullTransform
from openenv.environment import Transform as Transform

__all__ = ["CompositeTransform", "NullTransform", "Transform"]
