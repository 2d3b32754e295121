"""The old path `openenv.core.env_server.serialization`; written by scripts/mirrors.py."""

from openenv.protocol.serialization import deserialize_action as deserialize_action
from openenv.protocol.serialization import (
    deserialize_action_with_preprocessing as deserialize_action_with_preprocessing,
)
from openenv.protocol.serialization import serialize_observation as serialize_observation

__all__ = ["deserialize_action", "deserialize_action_with_preprocessing", "serialize_observation"]
