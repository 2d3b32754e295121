"""The old path `openenv.core.env_client`; written by scripts/mirrors.py."""

from openenv.client.client import ActT as ActT
from openenv.client.client import EnvClient as EnvClient
from openenv.client.client import ObsT as ObsT
from openenv.client.client import StateT as StateT
from openenv.types import StepResult as StepResult

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
