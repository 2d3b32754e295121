"""What is collected at the semantic level: solutions shown to the verifier, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openenv.reward import RewardSpec
from openenv.validation.evidence import Transcript
from openenv.validation.oracle import Episode
from openenv.validation.probes import Probe

__all__ = [
    "Canaries",
    "Elsewhere",
    "Floor",
    "Hack",
    "Hacks",
    "Leak",
    "NoOracle",
    "Shown",
    "Solutions",
    "Usage",
]


@dataclass(frozen=True)
class NoOracle:
    """There is no solution to show.

    Attributes:
        reason: Why not.
        is_declared: The manifest names one, which cannot be used.
    """

    reason: str
    is_declared: bool


@dataclass(frozen=True)
class Usage:
    """What an episode took.

    Attributes:
        seconds: Of wall clock.
        cpu_seconds: Of the server's processors; 0 where nobody can tell.
        peak_bytes: The most that the server held in memory meanwhile; 0 where nobody can tell.
    """

    seconds: float
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True)
class Leak:
    """A text of the solution that was seen before it was given.

    Attributes:
        step: The number of the step that was still to be taken.
        field: Where in the observation.
        secret: The text.
    """

    step: int
    field: str
    secret: str


@dataclass(frozen=True)
class Elsewhere:
    """A solution shown to a server in other circumstances.

    Attributes:
        transcript: What came of it; None where the server did not start.
        trouble: Why it did not; None where it could not be tried.
        is_offline: It had no network.
        no_offline: Why it had one, or could not be tried.
    """

    transcript: Transcript | None
    trouble: str | None = None
    is_offline: bool = False
    no_offline: str | None = None


@dataclass(frozen=True)
class Shown:
    """One solution.

    Attributes:
        episode: How it begins, and what it is called.
        transcript: What came of it.
        spec: What its rewards mean, as its reset told.
        again: The same actions in further sessions.
        anew: The same, written down and played on a server that was started anew.
        no_anew: Why there was none.
        elsewhere: The same in other circumstances.
        prefixes: By length, its beginnings, with nothing done after them.
        leaks: Texts of it that were seen before they were given.
        usage: What it took.
    """

    episode: Episode
    transcript: Transcript
    spec: RewardSpec | None
    again: tuple[Transcript, ...] = ()
    anew: Transcript | None = None
    no_anew: str | None = None
    elsewhere: Elsewhere | None = None
    prefixes: Mapping[int, Transcript] = field(default_factory=dict)
    leaks: tuple[Leak, ...] = ()
    usage: Usage = Usage(0.0)


@dataclass(frozen=True)
class Solutions:
    """Every solution that was shown."""

    shown: tuple[Shown, ...]


@dataclass(frozen=True)
class Floor:
    """Episodes in which nothing was done.

    Attributes:
        transcripts: One for each way that the oracle's episodes begin.
        policy: What doing nothing was.
        spec: What rewards mean.
    """

    transcripts: tuple[Transcript, ...]
    policy: str
    spec: RewardSpec | None


@dataclass(frozen=True)
class Canaries:
    """Episodes that the package says deserve nothing."""

    played: tuple[tuple[Episode, Transcript], ...]


@dataclass(frozen=True)
class Hack:
    """What came of a probe.

    Attributes:
        probe: What was tried.
        transcript: What came of it.
        is_alive: The session answered afterwards, and could begin another episode.
        is_healthy: So did the server.
    """

    probe: Probe
    transcript: Transcript
    is_alive: bool
    is_healthy: bool


@dataclass(frozen=True)
class Hacks:
    """What came of every probe."""

    tried: tuple[Hack, ...]
