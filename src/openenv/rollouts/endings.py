"""Responsibility for rollouts without a reward: the policy's, or everything else's.

An unscored rollout says nothing about the policy, and is left out. A rollout that the policy did
not bring to an end is different: if such rollouts were left out, a policy that gives up on hard
tasks would look better than one that tries. The record tells which kind a rollout is:

| how it ended, without a reward | who is responsible |
| --- | --- |
| `stopped`: the policy had nothing more to do | the policy |
| `limit`: its steps, tokens or time ran out, or its replies were no actions | the policy |
| `limit` of the wall clock, while the environment was being reset | the environment |
| `truncated`: the environment's own limit of an episode | the policy |
| `done` | the environment |
| `failed`: the policy raised, or its action was refused and it takes no refusals | the policy |
| `failed`: a session, a server or a model's API was lost, late, full or down | the environment |
| `failed` in any other way: the reset or a step raised, the scorer failed | the environment |
| any of these, and a grader gives the reason why it could not score | the environment |

From the first turn on, the policy is responsible for the wall clock, even if a step of the
environment took most of the time: the policy chose that step.
"""

from __future__ import annotations

from openenv.reward import RewardSpec, Score
from openenv.rollouts.records import Rollout

NOT_BEGUN = "its limit of wall_clock ended it before it had begun"
NO_REWARD = "the environment gave no reward"
NO_SCORE = "the trajectory scorer gave no score"
NOTHING_TO_SAY = "the scorer had nothing to say"
STOPPED = "the policy ended it before it was scored"
LIMIT = "its limit of {} ended it before it was scored"

# With one of these reasons, no grader has failed.
SILENT = frozenset({None, NO_REWARD, NO_SCORE, NOTHING_TO_SAY, STOPPED})


def why_unscored(rollout: Rollout) -> str:
    """Explain why a rollout has no reward if no grader gives a reason."""
    if rollout.outcome == "limit":
        return LIMIT.format(rollout.limit)
    return STOPPED if rollout.outcome == "stopped" else NO_REWARD


def is_given_up(rollout: Rollout) -> bool:
    """Return whether a rollout has no reward because of the policy; see the table above."""
    if rollout.outcome == "failed":
        return bool(rollout.failures) and rollout.failures[-1].is_by_policy
    if rollout.reward is not None or rollout.outcome not in ("stopped", "limit", "truncated"):
        return False
    return rollout.unscored in SILENT or rollout.unscored == LIMIT.format(rollout.limit)


def is_left(rollout: Rollout) -> bool:
    """Return whether an episode was under way when the policy stopped or ran into a limit."""
    return rollout.outcome in ("stopped", "limit") and rollout.unscored != NOT_BEGUN


def lowest_reward(spec: RewardSpec | None) -> float | None:
    """Return the reward of an episode that was given up before any reward was earned: the declared
    `unfinished`, else the lowest declared reward, at most 0; None if neither is declared.
    """
    if spec is None:
        return None
    if spec.unfinished is not None:
        return spec.unfinished
    return None if spec.range is None else min(0.0, spec.range[0])


def with_cost(score: Score, cost: float | None) -> Score:
    """Return the score of an unfinished episode with the cost of giving up added.

    Args:
        cost: The further cost of giving up; see `RewardSpec.unfinished`.
    """
    if not cost or score.value is None:
        return score
    parts = {**score.components, "unfinished": cost} if score.components else {}
    shares = None if score.step_rewards is None else list(score.step_rewards)
    if shares:
        shares[-1] += cost
    return Score(score.value + cost, parts, step_rewards=shares)
