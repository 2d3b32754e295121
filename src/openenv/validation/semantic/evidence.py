"""Evidence of the semantic level: shown solutions, and episodes that must earn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openenv.reward import RewardSpec
from openenv.validation.evidence import Transcript
from openenv.validation.oracle import OracleEpisode
from openenv.validation.probes import Probe


@dataclass(frozen=True)
class MissingOracle:
    """The reason why there is no solution to show."""

    reason: str
    is_declared: bool  # true if the manifest names an oracle that cannot be used


@dataclass(frozen=True)
class ResourceUsage:
    """The resources that an episode used."""

    seconds: float
    cpu_seconds: float = 0.0  # CPU seconds of the server; 0 if unknown
    peak_bytes: int = 0  # peak memory of the server; 0 if unknown


@dataclass(frozen=True)
class SolutionLeak:
    """A text of the solution that an observation showed too early."""

    step: int  # the number of the step still to be taken
    field: str
    secret: str


@dataclass(frozen=True)
class PortabilityTrial:
    """A solution replayed on a server in other circumstances."""

    transcript: Transcript | None  # the transcript; None if the server did not start
    trouble: str | None = None  # why it did not start; None if it could not be tried
    no_offline: str | None = None  # why the server had a network, or could not be tried


@dataclass(frozen=True)
class ShownSolution:
    """A solution shown to the verifier."""

    episode: OracleEpisode
    transcript: Transcript
    spec: RewardSpec | None  # the reward specification that the reset returned
    again: tuple[Transcript, ...] = ()  # replays of the same actions in further sessions
    anew: Transcript | None = None  # a replay from the record on a freshly started server
    no_anew: str | None = None  # why there is none
    elsewhere: PortabilityTrial | None = None  # a replay in other circumstances
    # Transcripts of prefixes, by length, followed by idling.
    prefixes: Mapping[int, Transcript] = field(default_factory=dict)
    leaks: tuple[SolutionLeak, ...] = ()  # texts of the solution that were shown too early
    usage: ResourceUsage = ResourceUsage(0.0)


@dataclass(frozen=True)
class ShownSolutions:
    """All solutions that were shown."""

    shown: tuple[ShownSolution, ...]


@dataclass(frozen=True)
class FloorEpisodes:
    """Episodes in which nothing was done."""

    transcripts: tuple[Transcript, ...]  # one for each beginning of the oracle's episodes
    policy: str  # a description of the idle policy
    spec: RewardSpec | None


@dataclass(frozen=True)
class CanaryEpisodes:
    """Episodes that the package declares to deserve nothing."""

    played: tuple[tuple[OracleEpisode, Transcript], ...]


@dataclass(frozen=True)
class HackAttempt:
    """The result of a probe."""

    probe: Probe
    transcript: Transcript
    is_alive: bool  # true if the session answered afterwards and could begin another episode
    is_healthy: bool  # true if the server was healthy afterwards


@dataclass(frozen=True)
class HackAttempts:
    """The results of all probes."""

    tried: tuple[HackAttempt, ...]
