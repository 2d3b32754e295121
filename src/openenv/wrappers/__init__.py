"""Wrappers that turn environments of other libraries into environment classes, without code.

    openenv serve gymnasium:CartPole-v1

    CartPole = openenv.wrappers.from_gymnasium("CartPole-v1", max_episode_steps=200)
    app = openenv.create_app(CartPole)

Every function returns an `Environment` class. A target of `openenv serve` has the form
``scheme:name?argument=value`` (see `openenv.wrappers.targets`).

This package uses `environment`, `spaces`, and for ORS `tools`; `cli` and `server` use it to serve
the classes. Read `classes.py` first (classes made at run time), then `gymnasium.py` (the simplest
wrapper).
"""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv._internal.packages import MissingPackage as MissingPackage
    from openenv.wrappers.classes import AdapterError as AdapterError
    from openenv.wrappers.dm_env import from_dm_env as from_dm_env
    from openenv.wrappers.gymnasium import from_gymnasium as from_gymnasium
    from openenv.wrappers.ors import from_ors as from_ors
    from openenv.wrappers.pettingzoo import from_pettingzoo as from_pettingzoo
    from openenv.wrappers.presets import from_openspiel as from_openspiel
    from openenv.wrappers.presets import from_reasoning_gym as from_reasoning_gym
    from openenv.wrappers.presets import from_textarena as from_textarena
    from openenv.wrappers.targets import from_python as from_python
    from openenv.wrappers.verifiers import from_verifiers as from_verifiers
else:
    __getattr__, __dir__, __all__ = lazy(__name__, submodules=["targets"])
