"""The old path `openenv.auto`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.hub.auto_action import AutoAction as AutoAction
    from openenv.hub.auto_env import AutoEnv as AutoEnv
    from openenv.auto import auto_action as auto_action
    from openenv.auto import auto_env as auto_env
else:
    __getattr__, __dir__, __all__ = lazy(__name__, ["_discovery"], unlisted=["openenv.auto"])
