"""Environments by name: installed ones, and those on the Hugging Face Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

__all__ = ["AutoAction", "AutoEnv"]

if TYPE_CHECKING:
    from openenv.auto.auto_action import AutoAction as AutoAction
    from openenv.auto.auto_env import AutoEnv as AutoEnv
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "openenv.auto.auto_action": ["AutoAction"],
            "openenv.auto.auto_env": ["AutoEnv"],
        },
        submodules=["auto_action", "auto_env"],
    )
