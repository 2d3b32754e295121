"""The versions of TRL that are supported.

- From 1.6 on, GRPOTrainer leaves a rollout out of its group's mean, with advantage 0, if each
  reward function returned None for it. Before, None counts as a reward of 0.
- From 1.8 on, an environment of ``environment_factory`` may have a ``get_reward``. Before, TRL
  takes that for a tool.
- From 1.11 on, a log-probability that vLLM does not know may be NaN. Before, NaN gets into the
  loss.
"""

from __future__ import annotations

import re
from importlib import metadata

from openenv.errors import NotSupported

__all__ = ["LOWEST", "check_trl", "installed_trl"]

LOWEST = (1, 6)
WITH_GET_REWARD = (1, 8)
WITH_NAN_LOGPROBS = (1, 11)


def installed_trl() -> tuple[int, int] | None:
    """Return the version of TRL that is installed, as major and minor; None without one."""
    try:
        found = re.match(r"(\d+)\.(\d+)", metadata.version("trl"))
    except metadata.PackageNotFoundError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def check_trl(*, has_get_reward: bool = False) -> None:
    """Refuse a TRL that would train on a wrong signal.

    Nothing is checked where TRL is not installed: the class of `environment_factory` works alone.

    Args:
        has_get_reward: Whether the environment's ``get_reward`` is needed.

    Raises:
        NotSupported: The version that is installed is too old.
    """
    version = installed_trl()
    if version is None:
        return
    named = ".".join(map(str, version))
    if version < LOWEST:
        raise NotSupported(
            f"trl {named} is installed, which counts a rollout whose environment failed as one of "
            "reward 0; expected trl>=1.6, which leaves it out: pip install 'trl>=1.6'",
            feature="trl",
        )
    if has_get_reward and version < WITH_GET_REWARD:
        raise NotSupported(
            f"trl {named} is installed, which takes get_reward for a tool of the model; expected "
            "trl>=1.8 (pip install 'trl>=1.8'), or gives_reward=False with a reward function that "
            "returns [place.reward for place in environments]",
            feature="get_reward",
        )
