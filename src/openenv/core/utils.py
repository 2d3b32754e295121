"""The old path `openenv.core.utils`; written by scripts/mirrors.py."""

from openenv.client.launch import hf_space_subdomain as hf_space_subdomain
from openenv.client.utils import convert_to_ws_url as convert_to_ws_url
from openenv.client.utils import run_async_safely as run_async_safely

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
