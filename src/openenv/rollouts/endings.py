"""Who is to blame for a rollout without a reward: the policy, or everything else.

A rollout that nobody could score says nothing of the policy, and is left out. One that the policy
did not bring to an end is different: a policy that gives up on what is hard, and is judged by the
rest, looks better than one that tries. So these are told apart, by what the record holds:

| how it ended, without a reward | whose end it is |
| --- | --- |
| `stopped`: the policy had nothing more to do | the policy's |
| `limit`: its steps, tokens or time ran out, or its replies were no actions | the policy's |
| `limit` of the wall clock, while the environment was being reset | the environment's |
| `truncated`: the environment's own limit of an episode | the policy's |
| `done` | the environment's |
| `failed`: the policy raised, or its action was refused and it takes no refusals | the policy's |
| `failed`: a session, a server, a model's API was lost, late, full or down | the environment's |
| `failed` in any other way: the reset or a step raised, the scorer failed | the environment's |
| any of these, and a grader says why it could not score it | the environment's |

The wall clock counts as the policy's from the first turn on, also where a step of the environment
took most of it: the policy chose that step.
"""

from __future__ import annotations

from openenv.reward import RewardSpec
from openenv.rollouts.records import Rollout

__all__ = [
    "NOT_BEGUN",
    "NO_REWARD",
    "NO_SCORE",
    "NOTHING_TO_SAY",
    "is_given_up",
    "lowest",
    "why_unscored",
]

NOT_BEGUN = "its limit of wall_clock ended it before it had begun"
NO_REWARD = "the environment gave no reward"
NO_SCORE = "the trajectory scorer gave no score"
NOTHING_TO_SAY = "the scorer had nothing to say"
STOPPED = "the policy ended it before it was scored"
LIMIT = "its limit of {} ended it before it was scored"

# Where these are all that is said of it, no grader has failed.
SILENT = frozenset({None, NO_REWARD, NO_SCORE, NOTHING_TO_SAY, STOPPED})


def why_unscored(rollout: Rollout) -> str:
    """Say why a rollout has no reward for which no grader gives a reason."""
    if rollout.outcome == "limit":
        return LIMIT.format(rollout.limit)
    return STOPPED if rollout.outcome == "stopped" else NO_REWARD


def is_given_up(rollout: Rollout) -> bool:
    """Say whether a rollout has no reward because of its policy; see the table above."""
    if rollout.outcome == "failed":
        return bool(rollout.failures) and rollout.failures[-1].is_by_policy
    if rollout.reward is not None or rollout.outcome not in ("stopped", "limit", "truncated"):
        return False
    return rollout.unscored in SILENT or rollout.unscored == LIMIT.format(rollout.limit)


def lowest(spec: RewardSpec | None) -> float | None:
    """Return what an episode is worth that was given up before it had any reward: the lowest
    reward that is declared, and at most 0; None if no range is declared.
    """
    return None if spec is None or spec.range is None else min(0.0, spec.range[0])
