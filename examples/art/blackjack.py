"""Blackjack with ART: play groups of hands, and train on them.

python blackjack.py ADDRESS_OF_MODEL NAME_OF_MODEL
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from typing import Any

import art  # type: ignore[import-not-found]

from openenv.integrations.art import rollout

PROMPT = "Play a hand of blackjack by the tool."


async def groups_of(model: Any, seeds: range, size: int = 8) -> list[Any]:
    """Play each hand several times, and tolerate failures of a tenth of the rollouts."""
    found: list[Any] = await art.gather_trajectory_groups(
        [
            art.TrajectoryGroup(
                rollout(model, "blackjack", reset={"seed": seed}, prompt=PROMPT)
                for _ in range(size)
            )
            for seed in seeds
        ],
        max_exceptions=0.1,
    )
    return found


async def train(model: Any, backend: Any, steps: int) -> None:
    """Train a model that is registered with an ART backend."""
    for step in range(await model.get_step(), steps):
        await backend.train(model, await groups_of(model, range(16 * step, 16 * step + 16)))


async def main(address: str, name: str) -> None:
    """Play with a served model, and print the rewards."""
    model = art.Model(
        name=name, project="blackjack", inference_api_key="none", inference_base_url=address
    )
    for seed, group in enumerate(await groups_of(model, range(4))):
        worth = statistics.mean(one.reward for one in group.trajectories)
        sys.stdout.write(f"seed {seed}: {worth:.2f}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
