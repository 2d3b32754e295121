"""The old path `openenv.core.env_server.interfaces`; written by scripts/mirrors.py."""

from openenv.environment import ActT as ActT
from openenv.environment import Environment as Environment
from openenv.environment import ObsT as ObsT
from openenv.environment import StateT as StateT
from openenv.environment import Transform as Transform
from openenv.tasks.provider import TaskProvider as TaskProvider
from openenv.types import Action as Action
from openenv.types import EnvironmentMetadata as EnvironmentMetadata
from openenv.types import Message as Message
from openenv.types import ModelTokenizer as ModelTokenizer
from openenv.types import Observation as Observation
from openenv.types import State as State

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
