"""Rollouts: episodes of many tasks, with several samples each, played by any policy and recorded.

Read ``engine.py`` first: every episode is played through it. ``episodes.py`` lets a policy play an
episode, ``runs.py`` plays many, and ``episode_sessions.py`` serves loops that other libraries own.
Above: evals, integrations, capture, validation and the command line. Below: the client, tasks and
rewards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rollouts.episode_sessions import ActionOutcome as ActionOutcome
    from openenv.rollouts.episode_sessions import EpisodeSession as EpisodeSession
    from openenv.rollouts.episode_sessions import EpisodeSessions as EpisodeSessions
    from openenv.rollouts.episode_sessions import NoActiveEpisode as NoActiveEpisode
    from openenv.rollouts.failures import RolloutsFailed as RolloutsFailed
    from openenv.rollouts.files import RolloutWriter as RolloutWriter
    from openenv.rollouts.files import read_header as read_header
    from openenv.rollouts.files import read_rollouts as read_rollouts
    from openenv.rollouts.files import write_parquet as write_parquet
    from openenv.rollouts.limits import RolloutLimits as RolloutLimits
    from openenv.rollouts.lines import RolloutFileError as RolloutFileError
    from openenv.rollouts.meter import Meter as Meter
    from openenv.rollouts.meter import MeterReading as MeterReading
    from openenv.rollouts.policies.base import Decision as Decision
    from openenv.rollouts.policies.base import EpisodeOpening as EpisodeOpening
    from openenv.rollouts.policies.base import InvalidReply as InvalidReply
    from openenv.rollouts.policies.base import Policy as Policy
    from openenv.rollouts.policies.base import PolicyError as PolicyError
    from openenv.rollouts.policies.base import PolicyStopped as PolicyStopped
    from openenv.rollouts.policies.base import PolicyTurn as PolicyTurn
    from openenv.rollouts.policies.functions import FunctionPolicy as FunctionPolicy
    from openenv.rollouts.policies.functions import PerEpisode as PerEpisode
    from openenv.rollouts.policies.named import policy_named as policy_named
    from openenv.rollouts.records import Failure as Failure
    from openenv.rollouts.records import Rollout as Rollout
    from openenv.rollouts.records import RolloutHeader as RolloutHeader
    from openenv.rollouts.records import RolloutUsage as RolloutUsage
    from openenv.rollouts.records import StepRecord as StepRecord
    from openenv.rollouts.runs import RolloutRun as RolloutRun
    from openenv.rollouts.runs import rollout as rollout
    from openenv.rollouts.runs import rollout_async as rollout_async
    from openenv.rollouts.summary import RolloutProgress as RolloutProgress
    from openenv.rollouts.summary import Summary as Summary
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
