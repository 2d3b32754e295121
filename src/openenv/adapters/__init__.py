"""Environments of other libraries as environments of this one, without code.

    openenv serve gymnasium:CartPole-v1

    CartPole = openenv.adapters.from_gymnasium("CartPole-v1", max_episode_steps=200)
    app = openenv.create_app(CartPole)

Every function gives an `Environment` class. A target of `openenv serve` names the same as
``scheme:name?argument=value`` (see `openenv.adapters.targets`).
"""

from typing import TYPE_CHECKING

from openenv._lazy import lazy

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
    from openenv._packages import MissingPackage
    from openenv.adapters.dm_env import from_dm_env
    from openenv.adapters.gymnasium import from_gymnasium
    from openenv.adapters.made import AdapterError
    from openenv.adapters.ors import from_ors
    from openenv.adapters.pettingzoo import from_pettingzoo
    from openenv.adapters.presets import from_openspiel, from_reasoning_gym, from_textarena
    from openenv.adapters.python import from_python
    from openenv.adapters.verifiers import from_verifiers

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.adapters.dm_env": ["from_dm_env"],
        "openenv.adapters.gymnasium": ["from_gymnasium"],
        "openenv.adapters.made": ["AdapterError"],
        "openenv.adapters.ors": ["from_ors"],
        "openenv._packages": ["MissingPackage"],
        "openenv.adapters.pettingzoo": ["from_pettingzoo"],
        "openenv.adapters.presets": ["from_openspiel", "from_reasoning_gym", "from_textarena"],
        "openenv.adapters.python": ["from_python"],
        "openenv.adapters.verifiers": ["from_verifiers"],
    },
    ["targets"],
)
