"""Clients and action models by environment name: `AutoEnv` and `AutoAction`.

Names may mean installed environments, directories, servers, images, or Spaces on the Hugging Face
Hub. ``catalog`` describes the environments of a repository without running them. Above: the CLI.
Below: `openenv.client`, `openenv.providers`, `openenv.hub` and `openenv.manifest`. Read
``auto_env.py`` first, then ``_discovery.py`` and ``_hub.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.auto.auto_action import AutoAction as AutoAction
    from openenv.auto.auto_env import AutoEnv as AutoEnv
else:
    __getattr__, __dir__, __all__ = lazy(__name__, submodules=["auto_action", "auto_env"])
