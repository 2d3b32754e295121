"""Evidence of the runtime level, each kind collected once for the graders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openenv.validation.actions import ActionSpace
from openenv.validation.evidence import FetchedPage, Transcript
from openenv.validation.probes import ProbePlan


@dataclass(frozen=True)
class ServerSurface:
    """The server's descriptions of itself, and the plan of the probe."""

    health: FetchedPage  # ``GET /health``
    schema: FetchedPage  # ``GET /schema``
    metadata: FetchedPage  # ``GET /metadata``
    plan: ProbePlan  # the plan, with the actions that were taken
    trouble: str | None = None  # why there are no actions to take; None if there are

    @property
    def action_space(self) -> ActionSpace:
        """The actions that the schema describes."""
        action = self.schema.object.get("action")
        return ActionSpace(action if isinstance(action, dict) else {})


@dataclass(frozen=True)
class Replays:
    """Replays of the measured episode."""

    baseline: Transcript  # the measured episode: the first session of the shared server
    # A replay in the same session, after another episode that was abandoned halfway.
    after_others: Transcript
    second: Transcript  # a replay in a second session of the same server
    anew: Transcript | None = None  # a replay in the first session of a freshly started server
    anew_second: Transcript | None = None  # a replay in the second session there
    no_anew: str | None = None  # why there is no such server


@dataclass(frozen=True)
class JudgedReplays:
    """The rewards of many replays, if a language model judges."""

    rewards: tuple[float, ...]  # the reward of each completed and scored replay
    unscored: int = 0  # number of unscored replays


@dataclass(frozen=True)
class SeedTrials:
    """Replays of the same actions after resets with other seeds, and without a seed."""

    seeded: Mapping[int, Transcript]  # transcripts by seed
    unseeded: tuple[Transcript, ...]  # transcripts without a seed


@dataclass(frozen=True)
class ConcurrentSessions:
    """Episodes played alone, and again concurrently."""

    alone: tuple[Transcript, ...] = ()  # each episode in its own session, while no other was open
    together: tuple[Transcript, ...] = ()  # the same episodes, each in its own session, all at once
    refused: str | None = None  # why they could not run at once: the server holds one session


@dataclass(frozen=True)
class ToolSurvey:
    """The tools that the server lists."""

    # The answer to ``tools/list`` on a session; None if there was none.
    listed: Mapping[str, Any] | None
    unknown: Mapping[str, Any] | None  # the answer to a call of a tool that does not exist

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tools as listed; None if the server has no notion of tools."""
        result = (self.listed or {}).get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            return None
        return [tool for tool in tools if isinstance(tool, dict)]


@dataclass(frozen=True)
class TaskSurvey:
    """The tasks that the server lists."""

    environments: FetchedPage  # ``GET /list_environments``
    splits: tuple[str, ...] = ()  # the names of the splits
    # By split, the answer to ``num_tasks``.
    counted: Mapping[str, Any] = field(default_factory=dict)
    # By split, the tasks that ``tasks`` lists.
    listed: Mapping[str, list[Any]] = field(default_factory=dict)
    # By split, answers to ``task``, by index; one index is past the end.
    fetched: Mapping[str, Mapping[int, FetchedPage]] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubjectRecording:
    """The subject's own recording of a session, beside the transcript."""

    transcript: Transcript
    # The recorded events as JSON data; None if there are none.
    events: tuple[Mapping[str, Any], ...] | None = None
    trouble: str | None = None


@dataclass(frozen=True)
class Confinement:
    """The confinement of the subject."""

    inspected: Mapping[str, Any]  # the provider's description of what is in force
    # The findings of the probe inside; None if it could not run.
    inside: Mapping[str, Any] | None = None
    trouble: str | None = None
