"""The old path `openenv.core.tools.git_server_client`; written by scripts/mirrors.py."""

from openenv.sandbox.git_server import GitServerClient as GitServerClient
from openenv.sandbox.git_server import RepoInfo as RepoInfo

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
