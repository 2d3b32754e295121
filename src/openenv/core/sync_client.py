"""The old path `openenv.core.sync_client`; written by scripts/mirrors.py."""

from openenv.client.client import ActT as ActT
from openenv.client.sync import SyncEnvClient as SyncEnvClient
from openenv.environment import StateT as StateT
from openenv.types import ObsT as ObsT
from openenv.types import StepResult as StepResult

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
