"""Playing episodes: many tasks, many samples of each, by any policy, and a record of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rollouts.episode_sessions import Answer, NoEpisode, Seat, Seats
    from openenv.rollouts.failures import RolloutsFailed
    from openenv.rollouts.files import (
        RolloutFileError,
        RolloutWriter,
        read_header,
        read_rollouts,
        write_parquet,
    )
    from openenv.rollouts.limits import RolloutLimits
    from openenv.rollouts.meter import Meter, Reading
    from openenv.rollouts.policies.base import (
        Decision,
        InvalidReply,
        Opening,
        Policy,
        PolicyError,
        PolicyStopped,
        Turn,
    )
    from openenv.rollouts.policies.functions import FunctionPolicy, PerEpisode
    from openenv.rollouts.policies.named import policy_named
    from openenv.rollouts.records import Failure, Header, Rollout, StepRecord, Usage
    from openenv.rollouts.runs import RolloutRun, rollout, rollout_async
    from openenv.rollouts.summary import Progress, Summary

__all__ = [
    "Answer",
    "Decision",
    "Failure",
    "FunctionPolicy",
    "Header",
    "InvalidReply",
    "Meter",
    "NoEpisode",
    "Opening",
    "PerEpisode",
    "Policy",
    "PolicyError",
    "PolicyStopped",
    "Progress",
    "Reading",
    "Rollout",
    "RolloutFileError",
    "RolloutLimits",
    "RolloutRun",
    "RolloutWriter",
    "RolloutsFailed",
    "Seat",
    "Seats",
    "StepRecord",
    "Summary",
    "Turn",
    "Usage",
    "policy_named",
    "read_header",
    "read_rollouts",
    "rollout",
    "rollout_async",
    "write_parquet",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.rollouts.failures": ["RolloutsFailed"],
        "openenv.rollouts.files": [
            "RolloutFileError",
            "RolloutWriter",
            "read_header",
            "read_rollouts",
            "write_parquet",
        ],
        "openenv.rollouts.limits": ["RolloutLimits"],
        "openenv.rollouts.meter": ["Meter", "Reading"],
        "openenv.rollouts.policies.base": [
            "Decision",
            "InvalidReply",
            "Opening",
            "Policy",
            "PolicyError",
            "PolicyStopped",
            "Turn",
        ],
        "openenv.rollouts.policies.functions": ["FunctionPolicy", "PerEpisode"],
        "openenv.rollouts.policies.named": ["policy_named"],
        "openenv.rollouts.records": ["Failure", "Header", "Rollout", "StepRecord", "Usage"],
        "openenv.rollouts.runs": ["RolloutRun", "rollout", "rollout_async"],
        "openenv.rollouts.episode_sessions": ["Answer", "NoEpisode", "Seat", "Seats"],
        "openenv.rollouts.summary": ["Progress", "Summary"],
    },
)
