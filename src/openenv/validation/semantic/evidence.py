"""Evidence of the semantic level: shown solutions, and episodes that must earn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openenv.reward import RewardSpec
from openenv.validation.evidence import Transcript
from openenv.validation.oracle import OracleEpisode
from openenv.validation.probes import Probe

__all__ = [
    "CanaryEpisodes",
    "PortabilityTrial",
    "FloorEpisodes",
    "HackAttempt",
    "HackAttempts",
    "SolutionLeak",
    "MissingOracle",
    "ShownSolution",
    "ShownSolutions",
    "ResourceUsage",
]


@dataclass(frozen=True)
class MissingOracle:
    """The reason why there is no solution to show.

    Attributes:
        reason: The reason.
        is_declared: True if the manifest names an oracle that cannot be used.
    """

    reason: str
    is_declared: bool


@dataclass(frozen=True)
class ResourceUsage:
    """The resources that an episode used.

    Attributes:
        seconds: Wall-clock seconds.
        cpu_seconds: CPU seconds of the server; 0 if unknown.
        peak_bytes: Peak memory of the server; 0 if unknown.
    """

    seconds: float
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True)
class SolutionLeak:
    """A text of the solution that an observation showed too early.

    Attributes:
        step: The number of the step still to be taken.
        field: The observation's field.
        secret: The text.
    """

    step: int
    field: str
    secret: str


@dataclass(frozen=True)
class PortabilityTrial:
    """A solution replayed on a server in other circumstances.

    Attributes:
        transcript: The transcript; None if the server did not start.
        trouble: Why it did not start; None if it could not be tried.
        is_offline: True if the server had no network.
        no_offline: Why it had a network, or could not be tried.
    """

    transcript: Transcript | None
    trouble: str | None = None
    is_offline: bool = False
    no_offline: str | None = None


@dataclass(frozen=True)
class ShownSolution:
    """A solution shown to the verifier.

    Attributes:
        episode: The oracle's episode.
        transcript: The transcript.
        spec: The reward specification that the reset returned.
        again: Replays of the same actions in further sessions.
        anew: A replay from the record on a freshly started server.
        no_anew: Why there is none.
        elsewhere: A replay in other circumstances.
        prefixes: Transcripts of prefixes, by length, followed by idling.
        leaks: Texts of the solution that were shown too early.
        usage: The resources used.
    """

    episode: OracleEpisode
    transcript: Transcript
    spec: RewardSpec | None
    again: tuple[Transcript, ...] = ()
    anew: Transcript | None = None
    no_anew: str | None = None
    elsewhere: PortabilityTrial | None = None
    prefixes: Mapping[int, Transcript] = field(default_factory=dict)
    leaks: tuple[SolutionLeak, ...] = ()
    usage: ResourceUsage = ResourceUsage(0.0)


@dataclass(frozen=True)
class ShownSolutions:
    """All solutions that were shown."""

    shown: tuple[ShownSolution, ...]


@dataclass(frozen=True)
class FloorEpisodes:
    """Episodes in which nothing was done.

    Attributes:
        transcripts: One for each beginning of the oracle's episodes.
        policy: A description of the idle policy.
        spec: The reward specification.
    """

    transcripts: tuple[Transcript, ...]
    policy: str
    spec: RewardSpec | None


@dataclass(frozen=True)
class CanaryEpisodes:
    """Episodes that the package declares to deserve nothing."""

    played: tuple[tuple[OracleEpisode, Transcript], ...]


@dataclass(frozen=True)
class HackAttempt:
    """The result of a probe.

    Attributes:
        probe: The probe.
        transcript: The transcript.
        is_alive: True if the session answered afterwards and could begin another episode.
        is_healthy: True if the server was healthy afterwards.
    """

    probe: Probe
    transcript: Transcript
    is_alive: bool
    is_healthy: bool


@dataclass(frozen=True)
class HackAttempts:
    """The results of all probes."""

    tried: tuple[HackAttempt, ...]
