"""What is collected of a subject that serves: each kind once, for the graders to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openenv.validation.actions import ActionSpace
from openenv.validation.evidence import Fetched, Transcript
from openenv.validation.probes import Plan

__all__ = [
    "Confinement",
    "Judged",
    "Recorded",
    "Replays",
    "Resets",
    "SideBySide",
    "Surface",
    "TaskSurvey",
    "ToolSurvey",
]


@dataclass(frozen=True)
class Surface:
    """What the server says about itself, and what is done to it.

    Attributes:
        health: ``GET /health``.
        schema: ``GET /schema``.
        metadata: ``GET /metadata``.
        plan: The probe's plan, with the actions that were taken.
        trouble: Why there are no actions to take; None where there are.
    """

    health: Fetched
    schema: Fetched
    metadata: Fetched
    plan: Plan
    trouble: str | None = None

    @property
    def action_space(self) -> ActionSpace:
        """The actions that the schema describes."""
        action = self.schema.object.get("action")
        return ActionSpace(action if isinstance(action, dict) else {})


@dataclass(frozen=True)
class Replays:
    """The same episode, again and again.

    Attributes:
        baseline: The first session of the shared server: the measured episode.
        after_others: The same in the same session, after the baseline and another episode that was
            abandoned halfway.
        second: The same in a second session of the same server.
        anew: The same in the first session of a server that was started anew.
        anew_second: The same in the second session there.
        no_anew: Why there is no such server.
    """

    baseline: Transcript
    after_others: Transcript
    second: Transcript
    anew: Transcript | None = None
    anew_second: Transcript | None = None
    no_anew: str | None = None


@dataclass(frozen=True)
class Judged:
    """What the episode was worth in each of many replays, where a language model judges.

    Attributes:
        rewards: Of each replay that was completed and scored.
        unscored: How many were not.
    """

    rewards: tuple[float, ...]
    unscored: int = 0


@dataclass(frozen=True)
class Resets:
    """The same actions, after resets with other seeds, and with none.

    Attributes:
        seeded: By seed.
        unseeded: Without one.
    """

    seeded: Mapping[int, Transcript]
    unseeded: tuple[Transcript, ...]


@dataclass(frozen=True)
class SideBySide:
    """Episodes alone, and the same ones side by side.

    Attributes:
        alone: Each in a session of its own, while there was no other.
        together: The same, each in a session of its own, all at once.
        refused: Why they could not be at once: the server holds one session.
    """

    alone: tuple[Transcript, ...] = ()
    together: tuple[Transcript, ...] = ()
    refused: str | None = None


@dataclass(frozen=True)
class ToolSurvey:
    """The tools that agents are told of.

    Attributes:
        listed: The answer to ``tools/list`` on a session; None where there was none.
        unknown: The answer to a call of a tool that there is not.
        schema: The tools that ``/schema`` tells; None where it tells none.
    """

    listed: Mapping[str, Any] | None
    unknown: Mapping[str, Any] | None
    schema: list[dict[str, Any]] | None = None

    @property
    def names(self) -> list[str] | None:
        """Of the tools; None where the server knows of no tools at all."""
        result = (self.listed or {}).get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            return None
        return [str(tool.get("name")) for tool in tools if isinstance(tool, dict)]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """As they were listed."""
        result = (self.listed or {}).get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        return [tool for tool in tools or () if isinstance(tool, dict)]


@dataclass(frozen=True)
class TaskSurvey:
    """The tasks that the server tells of.

    Attributes:
        environments: ``GET /list_environments``.
        splits: The names of the splits.
        counted: By split, what ``num_tasks`` says.
        listed: By split, the tasks that ``tasks`` lists.
        fetched: By split, answers to ``task``, by index; one index is past the end.
        trouble: What could not be asked.
    """

    environments: Fetched
    splits: tuple[str, ...] = ()
    counted: Mapping[str, Any] = field(default_factory=dict)
    listed: Mapping[str, list[Any]] = field(default_factory=dict)
    fetched: Mapping[str, Mapping[int, Fetched]] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """What the subject itself has recorded of a session, beside what was seen of it.

    Attributes:
        transcript: What was seen.
        events: What was recorded, as JSON has it; None where nothing was.
        trouble: Why not.
    """

    transcript: Transcript
    events: tuple[Mapping[str, Any], ...] | None = None
    trouble: str | None = None


@dataclass(frozen=True)
class Confinement:
    """What stands between the subject and the machine.

    Attributes:
        inspected: What the provider says is in force.
        inside: What the probe found that was run inside; None where it could not be.
        trouble: Why not.
    """

    inspected: Mapping[str, Any]
    inside: Mapping[str, Any] | None = None
    trouble: str | None = None
