"""Supported versions of TRL.

- Since 1.6, GRPOTrainer leaves a rollout out of its group's mean, with advantage 0, if each reward
  function returned None for it. Earlier versions count None as a reward of 0.
- Since 1.8, an environment of ``environment_factory`` may have a ``get_reward``. Earlier versions
  take it for a tool, and 1.6 cannot parse a model's tool calls with a newer transformers.
- Since 1.11, a log-probability that vLLM does not know may be NaN. In earlier versions, NaN gets
  into the loss.
"""

from __future__ import annotations

import re
from importlib import metadata

from openenv.errors import NotSupported

LOWEST = (1, 6)
LOWEST_WITH_FACTORY = (1, 8)
WITH_NAN_LOGPROBS = (1, 11)


def installed_trl() -> tuple[int, int] | None:
    """Return the installed version of TRL as (major, minor); None if not installed."""
    try:
        found = re.match(r"(\d+)\.(\d+)", metadata.version("trl"))
    except metadata.PackageNotFoundError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def check_trl(lowest: tuple[int, int] = LOWEST) -> None:
    """Refuse a version of TRL that would train on a wrong signal.

    If TRL is not installed, nothing is checked: the classes of `environment_factory` work without
    it.

    Raises:
        NotSupported: The installed version is too old.
    """
    version = installed_trl()
    if version is None or version >= lowest:
        return
    why = (
        "counts a rollout whose environment failed as one of reward 0"
        if version < LOWEST
        else "takes the get_reward of an environment for a tool of the model"
    )
    expected = ".".join(map(str, lowest))
    named = ".".join(map(str, version))
    also = "" if version < LOWEST else ", or use rollout_func, which needs trl>=1.6"
    raise NotSupported(
        f"trl {named} is installed, which {why}; expected trl>={expected}: "
        f"pip install 'trl>={expected}'{also}",
        feature="trl",
    )
