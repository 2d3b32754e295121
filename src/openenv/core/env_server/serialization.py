"""The old path `openenv.core.env_server.serialization`; written by scripts/mirrors.py."""

from openenv.protocol.serialization import deserialize_action as deserialize_action
from openenv.protocol.serialization import (
    deserialize_action_with_preprocessing as deserialize_action_with_preprocessing,
)
from openenv.protocol.serialization import serialize_observation as serialize_observation
from openenv.tools.types import CallToolAction as CallToolAction
from openenv.tools.types import ListToolsAction as ListToolsAction
from openenv.types import Action as Action
from openenv.types import Observation as Observation

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
