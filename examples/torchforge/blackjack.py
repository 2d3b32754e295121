"""Groups of hands of blackjack for GRPO with torchforge's own `generator` and `tokenizer`."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from openenv import OpenEnvError
from openenv.integrations.torchforge import ForgeRollout, rollout

PROMPT = [{"role": "user", "content": "Play a hand of blackjack."}]


async def group_of(
    generator: Any, tokenizer: Any, address: str, seed: int, size: int = 8
) -> list[ForgeRollout]:
    """Play one hand several times, and leave out failed and retokenized rollouts."""
    played = await asyncio.gather(
        *(
            rollout(
                generator,
                tokenizer,
                address,
                messages=PROMPT,
                reset={"seed": seed},
                max_turns=8,
                max_tokens=1024,
            )
            for _ in range(size)
        ),
        return_exceptions=True,
    )
    for one in played:
        if isinstance(one, BaseException) and not isinstance(one, OpenEnvError):
            raise one  # a mistake in the code, not a failed rollout
    return [one for one in played if isinstance(one, ForgeRollout) and one.is_exact]


def advantages(group: list[ForgeRollout]) -> list[float]:
    """Compute each rollout's advantage in its group, in standard deviations."""
    rewards = [one.reward for one in group]
    spread = statistics.pstdev(rewards)
    return [(reward - statistics.mean(rewards)) / (spread + 1e-4) for reward in rewards]
