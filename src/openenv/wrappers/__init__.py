"""Environments of other libraries as environments of this one, without code.

    openenv serve gymnasium:CartPole-v1

    CartPole = openenv.wrappers.from_gymnasium("CartPole-v1", max_episode_steps=200)
    app = openenv.create_app(CartPole)

Every function gives an `Environment` class. A target of `openenv serve` names the same as
``scheme:name?argument=value`` (see `openenv.wrappers.targets`).
"""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

__all__ = [
    "AdapterError",
    "MissingPackage",
    "from_dm_env",
    "from_gymnasium",
    "from_openspiel",
    "from_ors",
    "from_pettingzoo",
    "from_python",
    "from_reasoning_gym",
    "from_textarena",
    "from_verifiers",
]

if TYPE_CHECKING:
    from openenv._internal.packages import MissingPackage
    from openenv.wrappers.dm_env import from_dm_env
    from openenv.wrappers.gymnasium import from_gymnasium
    from openenv.wrappers.made import AdapterError
    from openenv.wrappers.ors import from_ors
    from openenv.wrappers.pettingzoo import from_pettingzoo
    from openenv.wrappers.presets import from_openspiel, from_reasoning_gym, from_textarena
    from openenv.wrappers.python import from_python
    from openenv.wrappers.verifiers import from_verifiers

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.wrappers.dm_env": ["from_dm_env"],
        "openenv.wrappers.gymnasium": ["from_gymnasium"],
        "openenv.wrappers.made": ["AdapterError"],
        "openenv.wrappers.ors": ["from_ors"],
        "openenv._internal.packages": ["MissingPackage"],
        "openenv.wrappers.pettingzoo": ["from_pettingzoo"],
        "openenv.wrappers.presets": ["from_openspiel", "from_reasoning_gym", "from_textarena"],
        "openenv.wrappers.python": ["from_python"],
        "openenv.wrappers.verifiers": ["from_verifiers"],
    },
    ["targets"],
)
