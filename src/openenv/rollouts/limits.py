"""Limits that end an episode from outside."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RolloutLimits:
    """Limits of one rollout. A rollout that a limit ends has the outcome ``limit``. This is not an
    error, and the reward is what was earned so far.

    Attributes:
        steps: Maximum number of steps; None for no limit.
        seconds: Time limit in seconds, from the reset of the attempt that counts; None for no
            limit. Each step passes the time left to the environment as `timeout_s`.
        tokens: Maximum number of tokens that the policy writes, as far as it reports them; None for
            no limit. Policies that call a model let it write no more than the tokens left.
        invalid_actions: Maximum number of invalid actions in a row: actions that the environment
            refuses, and replies that are no action. None for no limit. After a refusal, only
            policies with `wants_refusals` are asked again.

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
