"""The old path `openenv.core.env_server.exceptions`; written by scripts/mirrors.py."""

from openenv.errors import ConcurrencyConfigurationError as ConcurrencyConfigurationError
from openenv.errors import EnvironmentFactoryError as EnvironmentFactoryError
from openenv.errors import OpenEnvError as OpenEnvError
from openenv.errors import SessionCapacityError as SessionCapacityError
from openenv.errors import SessionCreationError as SessionCreationError
from openenv.errors import SessionNotFoundError as SessionNotFoundError

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
