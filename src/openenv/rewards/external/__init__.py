"""Rewards of other libraries as scorers of episodes, and scorers as rewards of those libraries.

    from openenv.rewards.external import bounded, from_trl, http_scorer

    env.trajectory_scorer = from_trl(accuracy)                    # a reward function of TRL
    env.trajectory_scorer = bounded(http_scorer(URL), cache="scores")

| | here as a scorer | a scorer as theirs |
| --- | --- | --- |
| a rubric of OpenEnv | `from_rubric` | `to_rubric` |
| reward functions in the manner of TRL | `from_trl` | `to_trl` |
| verifiers: rewards, tasks, judges | `from_verifiers` | `to_verifiers` |
| Inspect AI: scorers | `from_inspect` | `to_inspect` |
| Reasoning Gym: datasets | `from_reasoning_gym` | `to_reasoning_gym` |
| HTTP | `http_scorer` | `scoring_app` |
| a program | `command_scorer` | `score_stdin` |

A scorer is what `openenv.rewards.delayed` takes: a function of a `Trajectory`. `bounded` puts
limits to one: time, attempts, calls at a time; and keeps scores. Where something could not be
scored that is `Unscored`, with why, and never 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rewards.external.cache import DirectoryCache, MemoryCache, ScoreCache
    from openenv.rewards.external.command import command_scorer, score_stdin
    from openenv.rewards.external.conversation import (
        ChatAction,
        ChatObservation,
        as_messages,
        as_text,
        from_messages,
        task_of,
    )
    from openenv.rewards.external.fields import Fields
    from openenv.rewards.external.http import http_scorer, scoring_app
    from openenv.rewards.external.inspect_ai import from_inspect, to_inspect
    from openenv.rewards.external.limits import bounded, is_temporary
    from openenv.rewards.external.reasoning_gym import from_reasoning_gym, to_reasoning_gym
    from openenv.rewards.external.rubrics import from_rubric, to_rubric
    from openenv.rewards.external.scorers import Temporary
    from openenv.rewards.external.trl import from_trl, to_trl
    from openenv.rewards.external.verifiers import from_verifiers, to_verifiers

__all__ = [
    "ChatAction",
    "ChatObservation",
    "DirectoryCache",
    "Fields",
    "MemoryCache",
    "ScoreCache",
    "Temporary",
    "as_messages",
    "as_text",
    "bounded",
    "command_scorer",
    "from_inspect",
    "from_messages",
    "from_reasoning_gym",
    "from_rubric",
    "from_trl",
    "from_verifiers",
    "http_scorer",
    "is_temporary",
    "score_stdin",
    "scoring_app",
    "task_of",
    "to_inspect",
    "to_reasoning_gym",
    "to_rubric",
    "to_trl",
    "to_verifiers",
]

_HERE = "openenv.rewards.external"

__getattr__, __dir__ = lazy(
    __name__,
    {
        f"{_HERE}.limits": ["bounded", "is_temporary"],
        f"{_HERE}.cache": ["DirectoryCache", "MemoryCache", "ScoreCache"],
        f"{_HERE}.command": ["command_scorer", "score_stdin"],
        f"{_HERE}.conversation": [
            "ChatAction",
            "ChatObservation",
            "as_messages",
            "as_text",
            "from_messages",
            "task_of",
        ],
        f"{_HERE}.fields": ["Fields"],
        f"{_HERE}.http": ["http_scorer", "scoring_app"],
        f"{_HERE}.inspect_ai": ["from_inspect", "to_inspect"],
        f"{_HERE}.reasoning_gym": ["from_reasoning_gym", "to_reasoning_gym"],
        f"{_HERE}.rubrics": ["from_rubric", "to_rubric"],
        f"{_HERE}.scorers": ["Temporary"],
        f"{_HERE}.trl": ["from_trl", "to_trl"],
        f"{_HERE}.verifiers": ["from_verifiers", "to_verifiers"],
    },
)
