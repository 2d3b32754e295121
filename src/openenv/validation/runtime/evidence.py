"""Evidence of the runtime level, each kind collected once for the graders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openenv.validation.actions import ActionSpace
from openenv.validation.evidence import FetchedPage, Transcript
from openenv.validation.probes import ProbePlan

__all__ = [
    "Confinement",
    "JudgedReplays",
    "SubjectRecording",
    "Replays",
    "SeedTrials",
    "ConcurrentSessions",
    "ServerSurface",
    "TaskSurvey",
    "ToolSurvey",
]


@dataclass(frozen=True)
class ServerSurface:
    """The server's descriptions of itself, and the plan of the probe.

    Attributes:
        health: ``GET /health``.
        schema: ``GET /schema``.
        metadata: ``GET /metadata``.
        plan: The plan, with the actions that were taken.
        trouble: Why there are no actions to take; None if there are.
    """

    health: FetchedPage
    schema: FetchedPage
    metadata: FetchedPage
    plan: ProbePlan
    trouble: str | None = None

    @property
    def action_space(self) -> ActionSpace:
        """The actions that the schema describes."""
        action = self.schema.object.get("action")
        return ActionSpace(action if isinstance(action, dict) else {})


@dataclass(frozen=True)
class Replays:
    """Replays of the measured episode.

    Attributes:
        baseline: The measured episode: the first session of the shared server.
        after_others: A replay in the same session, after another episode that was abandoned
            halfway.
        second: A replay in a second session of the same server.
        anew: A replay in the first session of a freshly started server.
        anew_second: A replay in the second session there.
        no_anew: Why there is no such server.
    """

    baseline: Transcript
    after_others: Transcript
    second: Transcript
    anew: Transcript | None = None
    anew_second: Transcript | None = None
    no_anew: str | None = None


@dataclass(frozen=True)
class JudgedReplays:
    """The rewards of many replays, if a language model judges.

    Attributes:
        rewards: The reward of each completed and scored replay.
        unscored: Number of unscored replays.
    """

    rewards: tuple[float, ...]
    unscored: int = 0


@dataclass(frozen=True)
class SeedTrials:
    """Replays of the same actions after resets with other seeds, and without a seed.

    Attributes:
        seeded: Transcripts by seed.
        unseeded: Transcripts without a seed.
    """

    seeded: Mapping[int, Transcript]
    unseeded: tuple[Transcript, ...]


@dataclass(frozen=True)
class ConcurrentSessions:
    """Episodes played alone, and again concurrently.

    Attributes:
        alone: Each episode in its own session, while no other was open.
        together: The same episodes, each in its own session, all at once.
        refused: Why they could not run at once: the server holds one session.
    """

    alone: tuple[Transcript, ...] = ()
    together: tuple[Transcript, ...] = ()
    refused: str | None = None


@dataclass(frozen=True)
class ToolSurvey:
    """The tools that the server lists.

    Attributes:
        listed: The answer to ``tools/list`` on a session; None if there was none.
        unknown: The answer to a call of a tool that does not exist.
        schema: The tools in ``/schema``; None if it lists none.
    """

    listed: Mapping[str, Any] | None
    unknown: Mapping[str, Any] | None
    schema: list[dict[str, Any]] | None = None

    @property
    def names(self) -> list[str] | None:
        """The names of the tools; None if the server has no notion of tools."""
        result = (self.listed or {}).get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            return None
        return [str(tool.get("name")) for tool in tools if isinstance(tool, dict)]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as listed."""
        result = (self.listed or {}).get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        return [tool for tool in tools or () if isinstance(tool, dict)]


@dataclass(frozen=True)
class TaskSurvey:
    """The tasks that the server lists.

    Attributes:
        environments: ``GET /list_environments``.
        splits: The names of the splits.
        counted: By split, the answer to ``num_tasks``.
        listed: By split, the tasks that ``tasks`` lists.
        fetched: By split, answers to ``task``, by index; one index is past the end.
        trouble: Requests that failed.
    """

    environments: FetchedPage
    splits: tuple[str, ...] = ()
    counted: Mapping[str, Any] = field(default_factory=dict)
    listed: Mapping[str, list[Any]] = field(default_factory=dict)
    fetched: Mapping[str, Mapping[int, FetchedPage]] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubjectRecording:
    """The subject's own recording of a session, beside the transcript.

    Attributes:
        transcript: The transcript.
        events: The recorded events as JSON data; None if there are none.
        trouble: Why not.
    """

    transcript: Transcript
    events: tuple[Mapping[str, Any], ...] | None = None
    trouble: str | None = None


@dataclass(frozen=True)
class Confinement:
    """The confinement of the subject.

    Attributes:
        inspected: The provider's description of what is in force.
        inside: The findings of the probe inside; None if it could not run.
        trouble: Why not.
    """

    inspected: Mapping[str, Any]
    inside: Mapping[str, Any] | None = None
    trouble: str | None = None
