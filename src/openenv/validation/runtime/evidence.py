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
    """The server's descriptions of itself, and the probe plan."""

    health: FetchedPage  # ``GET /health``
    schema: FetchedPage  # ``GET /schema``
    metadata: FetchedPage  # ``GET /metadata``
    plan: ProbePlan  # the plan, with the actions that were taken
    trouble: str | None = None  # why there are no actions to take; None if there are actions

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
    anew: Transcript | None = None  # a replay in the first session of a newly started server
    anew_second: Transcript | None = None  # a replay in the second session of that server
    no_anew: str | None = None  # why that server could not be started


@dataclass(frozen=True)
class JudgedReplays:
    """The rewards of many replays, for environments that a language model scores."""

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

    alone: tuple[Transcript, ...] = ()  # each episode in its own session, one after the other
    together: tuple[Transcript, ...] = ()  # the same episodes in concurrent sessions
    refused: str | None = None  # the server's refusal of a further session, if it holds only one


@dataclass(frozen=True)
class ToolSurvey:
    """The tools that the server lists."""

    # The answer to ``tools/list`` on a session; None if there was no answer.
    listed: Mapping[str, Any] | None
    unknown: Mapping[str, Any] | None  # the answer to a call of a tool that does not exist

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The listed tools; None if the server does not support tools."""
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
    # The answers to ``num_tasks`` by split.
    counted: Mapping[str, Any] = field(default_factory=dict)
    # The tasks that ``tasks`` lists, by split.
    listed: Mapping[str, list[Any]] = field(default_factory=dict)
    # The answers to ``task`` by split and index; one index is past the end.
    fetched: Mapping[str, Mapping[int, FetchedPage]] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubjectRecording:
    """The subject's own recording of a session, together with the transcript."""

    transcript: Transcript
    # The recorded events as JSON data; None if there is no recording.
    events: tuple[Mapping[str, Any], ...] | None = None
    trouble: str | None = None


@dataclass(frozen=True)
class Confinement:
    """The confinement of the subject."""

    inspected: Mapping[str, Any]  # the provider's description of the limits in force
    # The findings of the probe inside the subject; None if the probe could not run.
    inside: Mapping[str, Any] | None = None
    trouble: str | None = None
