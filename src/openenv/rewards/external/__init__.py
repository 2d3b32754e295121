"""Bridges between scorers of OpenEnv and the reward functions of other libraries.

    from openenv.rewards.external import bounded, from_trl, http_scorer

    env.trajectory_scorer = from_trl(accuracy)                    # a reward function of TRL
    env.trajectory_scorer = bounded(http_scorer(URL), cache="scores")

| | to a trajectory scorer | from a trajectory scorer |
| --- | --- | --- |
| rubrics of OpenEnv | `from_rubric` | `to_rubric` |
| reward functions of TRL | `from_trl` | `to_trl` |
| verifiers: rewards, tasks, judges | `from_verifiers` | `to_verifiers` |
| Inspect AI: scorers | `from_inspect` | `to_inspect` |
| Reasoning Gym: datasets | `from_reasoning_gym` | `to_reasoning_gym` |
| HTTP | `http_scorer` | `scoring_app` |
| a program | `command_scorer` | `score_stdin` |

A trajectory scorer is a function of a `Trajectory` (`openenv.rewards.delayed`). `bounded` limits
the time, attempts and concurrent calls of a scorer, and caches scores. An episode that cannot be
scored is `Unscored`, with the reason, and never gets 0.

Read `scorers.py` first (what a scorer is), then `conversation.py` (episodes as messages).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rewards.external.cache import DirectoryCache as DirectoryCache
    from openenv.rewards.external.cache import MemoryCache as MemoryCache
    from openenv.rewards.external.cache import ScoreCache as ScoreCache
    from openenv.rewards.external.command import command_scorer as command_scorer
    from openenv.rewards.external.command import score_stdin as score_stdin
    from openenv.rewards.external.conversation import ChatAction as ChatAction
    from openenv.rewards.external.conversation import ChatObservation as ChatObservation
    from openenv.rewards.external.conversation import as_messages as as_messages
    from openenv.rewards.external.conversation import as_text as as_text
    from openenv.rewards.external.conversation import from_messages as from_messages
    from openenv.rewards.external.conversation import task_of as task_of
    from openenv.rewards.external.fields import Fields as Fields
    from openenv.rewards.external.http import http_scorer as http_scorer
    from openenv.rewards.external.http import scoring_app as scoring_app
    from openenv.rewards.external.inspect_ai import from_inspect as from_inspect
    from openenv.rewards.external.inspect_ai import to_inspect as to_inspect
    from openenv.rewards.external.limits import bounded as bounded
    from openenv.rewards.external.limits import is_temporary as is_temporary
    from openenv.rewards.external.reasoning_gym import from_reasoning_gym as from_reasoning_gym
    from openenv.rewards.external.reasoning_gym import to_reasoning_gym as to_reasoning_gym
    from openenv.rewards.external.rubrics import from_rubric as from_rubric
    from openenv.rewards.external.rubrics import to_rubric as to_rubric
    from openenv.rewards.external.scorers import TemporarilyUnscored as TemporarilyUnscored
    from openenv.rewards.external.trl import from_trl as from_trl
    from openenv.rewards.external.trl import to_trl as to_trl
    from openenv.rewards.external.verifiers import from_verifiers as from_verifiers
    from openenv.rewards.external.verifiers import to_verifiers as to_verifiers
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
