"""The old path `openenv.core.tools`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.sandbox.git_server import GitServerClient as GitServerClient
    from openenv.sandbox.git_server import RepoInfo as RepoInfo
    from openenv.sandbox.py_executor import PyExecutor as PyExecutor
    from openenv.core.tools import git_server_client as git_server_client
    from openenv.core.tools import local_python_executor as local_python_executor
else:
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core.tools"])
