"""Credit assignment: the share of an episode's reward that each step receives.

A credit assignment is a function of the episode's reward and the number of steps. It returns one
reward per step, in order. `CREDITS` names the built-in ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from openenv._internal.quoting import did_you_mean

__all__ = [
    "CREDITS",
    "Credit",
    "TokenCredit",
    "resolve_credit",
    "discounted",
    "group_advantages",
    "last_token",
    "spread_over_tokens",
    "terminal",
    "uniform",
]

Credit = Callable[[float, int], Sequence[float]]

TokenCredit = Callable[[Sequence[float], Sequence[int]], Sequence[Sequence[float]]]
"""A function that takes the reward and the number of tokens of each step, and returns the rewards
of the tokens, one list per step.
"""


def terminal(reward: float, steps: int) -> list[float]:
    """Give the whole reward to the last step and 0 to the others."""
    return [0.0] * (steps - 1) + [reward] if steps else []


def uniform(reward: float, steps: int) -> list[float]:
    """Give each step an equal share of the reward."""
    return [reward / steps] * steps if steps else []


def discounted(gamma: float = 0.99) -> Credit:
    """Give step t of T ``gamma**(T - 1 - t)`` times the reward, so that earlier steps get less.

    Raises:
        ValueError: `gamma` is not between 0 and 1.
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be from 0 to 1, not {gamma}")

    def credit(reward: float, steps: int) -> list[float]:
        return [gamma ** (steps - 1 - step) * reward for step in range(steps)]

    return credit


CREDITS: dict[str, Credit] = {
    "terminal": terminal,
    "uniform": uniform,
    "discounted": discounted(),
}


def resolve_credit(credit: str | Credit) -> Credit:
    """Return the credit assignment for a name such as ``uniform`` or ``discounted:0.95``.

    A function is returned unchanged.

    Raises:
        ValueError: The name is unknown, or the number after the colon is not between 0 and 1.
    """
    if callable(credit):
        return credit
    name, _, gamma = credit.partition(":")
    if name == "discounted" and gamma:
        try:
            return discounted(float(gamma))
        except ValueError as error:
            raise ValueError(f"credit {credit!r}: {error}") from None
    if credit not in CREDITS:
        known = ", ".join(CREDITS)
        raise ValueError(
            f"unknown credit assignment {credit!r}; expected one of {known}"
            f"{did_you_mean(name, CREDITS)}"
        )
    return CREDITS[credit]


# ------------------------------------------------------------------ tokens


def last_token(rewards: Sequence[float], tokens: Sequence[int]) -> list[list[float]]:
    """Give each step's reward to the last token written for that step."""
    return [terminal(reward, count) for reward, count in zip(rewards, tokens, strict=True)]


def spread_over_tokens(rewards: Sequence[float], tokens: Sequence[int]) -> list[list[float]]:
    """Spread each step's reward evenly over the tokens written for that step."""
    return [uniform(reward, count) for reward, count in zip(rewards, tokens, strict=True)]


def group_advantages(
    rewards: Sequence[float | None], size: int, *, is_scaled: bool = True
) -> list[float]:
    """Return each episode's advantage over the mean of the group, as in GRPO.

    The scaled advantage is eq. 3 of Shao et al. 2024, "DeepSeekMath"; the advantage without scale
    is from Liu et al. 2025, "Understanding R1-Zero-Like Training".

    Args:
        rewards: The rewards of the episodes, group after group. A reward of None is left out of the
            group's mean and deviation.
        size: Number of episodes in a group.
        is_scaled: Divide by the standard deviation of the group's rewards (plus 1e-4).

    Returns:
        One advantage per episode; 0.0 if the reward is None or the only known reward of the group.

    Raises:
        ValueError: `size` is not positive, or the number of rewards is not a multiple of `size`.
    """
    if size < 1 or len(rewards) % size:
        raise ValueError(f"{len(rewards)} rewards cannot be split into groups of {size}")
    found: list[float] = []
    for at in range(0, len(rewards), size):
        group = rewards[at : at + size]
        known = [one for one in group if one is not None]
        mean = statistics.fmean(known) if known else 0.0
        scale = statistics.stdev(known) + 1e-4 if is_scaled and len(known) > 1 else 1.0
        found += [0.0 if one is None else (one - mean) / scale for one in group]
    return found
