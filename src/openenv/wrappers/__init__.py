"""Environments of other libraries as environments of this one, without code.

    openenv serve gymnasium:CartPole-v1

    CartPole = openenv.wrappers.from_gymnasium("CartPole-v1", max_episode_steps=200)
    app = openenv.create_app(CartPole)

Every function gives an `Environment` class. A target of `openenv serve` names the same as
``scheme:name?argument=value`` (see `openenv.wrappers.targets`).
"""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv._internal.packages import MissingPackage as MissingPackage
    from openenv.wrappers.dm_env import from_dm_env as from_dm_env
    from openenv.wrappers.gymnasium import from_gymnasium as from_gymnasium
    from openenv.wrappers.made import AdapterError as AdapterError
    from openenv.wrappers.ors import from_ors as from_ors
    from openenv.wrappers.pettingzoo import from_pettingzoo as from_pettingzoo
    from openenv.wrappers.presets import from_openspiel as from_openspiel
    from openenv.wrappers.presets import from_reasoning_gym as from_reasoning_gym
    from openenv.wrappers.presets import from_textarena as from_textarena
    from openenv.wrappers.python import from_python as from_python
    from openenv.wrappers.verifiers import from_verifiers as from_verifiers
else:
    __getattr__, __dir__, __all__ = lazy(__name__, submodules=["targets"])
