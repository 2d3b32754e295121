"""The old path `openenv.core.generic_client`; written by scripts/mirrors.py."""

from openenv.client.client import EnvClient as EnvClient
from openenv.client.generic import GenericAction as GenericAction
from openenv.client.generic import GenericEnvClient as GenericEnvClient
from openenv.types import StepResult as StepResult

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
