"""Limits that end an episode from outside."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RolloutLimits:
    """Limits of one rollout. A rollout ended by a limit has the outcome ``limit``: that is no
    error, and the reward is what was earned by then.

    Attributes:
        steps: Steps of the environment; None for no limit.
        seconds: Wall clock, from the reset on, of the attempt that counts; None for no limit. The
            environment is told what is left of it with each step, as its `timeout_s`.
        tokens: That the policy writes, as far as it tells of them; None for no limit. A policy that
            asks a model has it write no more than are left.
        invalid_actions: In a row, which the environment refuses or which are none at all; None for
            no limit. Only policies that want to know why are asked again.

    Raises:
        ValueError: A limit is not positive.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import RolloutLimits, rollout
        >>> limits = RolloutLimits(steps=3)
        >>> run = rollout(EchoEnvironment, lambda *_: {"message": "hi"}, limits=limits)
        >>> run.summary().outcomes
        {'limit': 1}
    """

    steps: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    invalid_actions: int | None = 10

    def __post_init__(self) -> None:
        for name in ("steps", "seconds", "tokens", "invalid_actions"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name}={value!r} of RolloutLimits; it must be above 0, or None")
