"""The old path `openenv.core.tools`; written by scripts/mirrors.py."""

from openenv.sandbox.git_server import GitServerClient as GitServerClient
from openenv.sandbox.git_server import RepoInfo as RepoInfo
from openenv.sandbox.py_executor import PyExecutor as PyExecutor

__all__ = ["GitServerClient", "PyExecutor", "RepoInfo"]
