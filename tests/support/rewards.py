"""Episodes that are held against what their environment declares of its rewards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from openenv.reward import RewardSpec, adds_up
from openenv.types import StepResult

Episode = list[StepResult[Any]]


def played(env: Any, policy: Callable[[Any], Any], max_steps: int = 1000, **reset: Any) -> Episode:
    """Play an episode to its end, by what a policy does of each observation."""
    episode: Episode = [env.reset(**reset)]
    while not episode[-1].done and len(episode) <= max_steps:
        episode.append(env.step(policy(episode[-1].observation)))
    return episode


def in_turn(actions: Iterable[Any]) -> Callable[[Any], Any]:
    """A policy that does what is listed, whatever it sees."""
    given = iter(actions)
    return lambda observation: next(given)


def worth(episode: Episode) -> float | None:
    """What an episode is worth, once each of its rewards was found to be as it is declared."""
    told = episode[0].reward_info
    assert told is not None, "nothing is told of the rewards"
    spec = RewardSpec.from_data(told["spec"])
    assert spec.components
    for step in episode[1:]:
        assert step.components.keys() <= set(spec.components)
        if step.reward is None:
            assert not step.components
            continue
        # Only a reward of 0 may be without components.
        assert step.unscored is None and adds_up(step.reward, step.components), step
        if spec.range is not None:
            assert spec.range[0] <= step.reward <= spec.range[1]
        if spec.kind == "terminal" and not step.done:
            assert step.reward == 0
    steps = episode[1:]
    return spec.total([step.reward for step in steps], [step.unscored for step in steps])


def parts(episode: Episode) -> dict[str, float]:
    """What each component has brought in an episode; those that brought nothing are left out."""
    brought: Counter[str] = Counter()
    for step in episode[1:]:
        brought.update({name: part for name, part in step.components.items() if part})
    return {name: part for name, part in brought.items() if not math.isclose(part, 0)}
