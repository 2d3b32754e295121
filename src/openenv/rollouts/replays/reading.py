"""Reader of recordings, episode by episode."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from openenv._internal.quoting import first_problem
from openenv.errors import RecordingError
from openenv.execution.recording import FORMAT, FORMAT_VERSION, SUFFIX

CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class RecordingHeader:
    """The first line of a recording.

    Attributes:
        target: The target of the environment (see `openenv.server.loading`); None if unknown.
        schema: A digest of the models of its actions and observations.
        part: The number of the part that begins with this header, from 0.
    """

    environment: str
    target: str | None
    schema: str | None
    openenv: str
    session_id: str
    time: float
    part: int = 0


@dataclass(frozen=True)
class RecordedError:
    """An error of a reset or a step: class, wire code and text."""

    type: str
    code: str
    message: str


@dataclass(frozen=True)
class RecordedEvent:
    """A reset, step or restore. Values have JSON types.

    Attributes:
        step: The number of the step in its episode; 0 for other events.
        time: Time of the answer, in seconds since the epoch.
        seconds: Seconds that the environment took.
        observation: The observation without reward, done and truncated; None after an error.
        reward_info: Details of the reward; see `openenv.reward`.
        unrecorded: Reason why something could not be recorded; None if everything was.
    """

    kind: Annotated[Literal["reset", "step", "restore"], Field(alias="event")]
    episode: int
    step: int
    time: float
    seconds: float
    seed: Any = None
    action: dict[str, Any] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    snapshot: Base64Bytes | None = None
    observation: Any = None
    reward: bool | int | float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    ignored_arguments: tuple[str, ...] = ()
    reward_info: dict[str, Any] | None = None
    state: Any = None
    error: RecordedError | None = None
    unrecorded: str | None = None

    @property
    def done(self) -> bool:
        """True if the episode is over."""
        return self.terminated or self.truncated

    @property
    def begins(self) -> bool:
        """True if the event begins an episode."""
        return self.kind != "step" and self.error is None


@dataclass
class RecordedEpisode:
    """The events from a reset or restore to the next.

    Attributes:
        number: The number in the session, from 1; 0 for events before the first episode.
        events: The events, in order. If `has_beginning`, the first one begins the episode. Empty if
            all events before the next episode, or before the end, are missing.
        lost: Number of events missing after the last one. Events after the gap form another
            `RecordedEpisode`, often with the same number.
        is_torn: True if the recording breaks off here without the end of the session: the server
            was killed, its disk stayed full to the end, or the session is still open.
    """

    number: int
    events: list[RecordedEvent] = field(default_factory=list)
    lost: int = 0
    is_torn: bool = False

    @property
    def has_beginning(self) -> bool:
        """True if the first event begins the episode."""
        return bool(self.events) and self.events[0].begins

    @property
    def is_whole(self) -> bool:
        """True if the beginning is there, and no event is known to be missing.

        If the recording breaks off, only an episode that came to its end is whole.
        """
        return self.has_beginning and not self.lost and (self.is_done or not self.is_torn)

    @property
    def is_done(self) -> bool:
        """True if the episode came to an end."""
        return bool(self.events) and self.events[-1].done

    @property
    def seed(self) -> Any:
        """The seed of the reset; None without a seed."""
        return self.events[0].seed if self.events else None

    @property
    def total_reward(self) -> float:
        """The sum of the rewards."""
        return sum(event.reward or 0 for event in self.events)


def read(path: str | os.PathLike[str]) -> Iterator[RecordedEpisode]:
    """Yield the episodes of a recording, including further parts (``.1``, ``.2``).

    Raises:
        RecordingError: The file is not a recording, or is damaged. An incomplete last line, left by
            a killed server, is not an error.
    """
    episode: RecordedEpisode | None = None
    latest = 0
    for event in _events(Path(path)):
        if event is None or isinstance(event, _Gap):
            if episode is None:
                episode = RecordedEpisode(latest)
            episode.is_torn = event is None
            episode.lost += 0 if event is None else event.lost
        else:
            if episode is not None and (event.begins or episode.lost):
                yield episode
                episode = None
            if episode is None:
                episode = RecordedEpisode(event.episode)
            episode.events.append(event)
            latest = event.episode
    if episode is not None:
        yield episode


def read_header(path: str | os.PathLike[str]) -> RecordingHeader:
    """Read the header of a recording.

    Raises:
        OSError: The file cannot be read.
        RecordingError: The file is not a recording.
    """
    with Path(path).open("rb") as file:
        return _header(Path(path), file.readline())


def count_events(path: str | os.PathLike[str]) -> int:
    """Count the lines of a recording that are not headers, without parsing them."""
    lines = 0
    for part in _parts(Path(path)):
        with part.open("rb") as file:
            lines += sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))
            lines -= 1
    return max(lines, 0)


# ------------------------------------------------------------------ lines


def _parts(path: Path) -> Iterator[Path]:
    yield path
    named = re.fullmatch(rf"(.*{re.escape(SUFFIX)})(?:\.(\d+))?", path.name)
    if named is None:
        return
    number = int(named[2] or 0) + 1
    while (part := path.with_name(f"{named[1]}.{number}")).exists():
        yield part
        number += 1


def _events(path: Path) -> Iterator[RecordedEvent | _Gap | None]:
    """Yield the events and gaps of all parts, then None unless the session has ended."""
    parts = list(_parts(path))
    has_ended = False
    for part in parts:
        is_last = part is parts[-1]
        with part.open("rb") as file:
            header = file.readline()
            if is_last and part is not path and not header.endswith(b"\n"):
                yield None
                return
            _header(part, header)
            for number, line in enumerate(file, 2):
                if line.endswith(b"\n"):
                    event = _line(part, number, line)
                    has_ended = event is None
                    if event is not None:
                        yield event
                elif is_last:
                    has_ended = False
                else:
                    raise RecordingError(str(part), number, "the line is cut off")
    if not has_ended:
        yield None


def _line(path: Path, number: int, line: bytes) -> RecordedEvent | _Gap | None:
    """Return the event or gap of a line; None for the end of a session."""
    try:
        found = from_json(line)
        kind = found.get("event") if isinstance(found, dict) else None
        if kind == "end":
            return None
        return _GAPS.validate_python(found) if kind == "gap" else _EVENTS.validate_python(found)
    except ValueError as error:
        raise RecordingError(str(path), number, _damage(error)) from error


def _header(path: Path, line: bytes) -> RecordingHeader:
    try:
        found = from_json(line)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError("it does not begin as one")
    except ValueError as error:
        raise RecordingError(str(path), None, f"this is no recording: {error}") from error
    if found.get("version") != FORMAT_VERSION:
        raise RecordingError(str(path), 1, "it was written by a later version of openenv")
    try:
        return _HEADERS.validate_python(found)
    except ValidationError as error:
        raise RecordingError(str(path), 1, _damage(error)) from error


def _damage(error: ValueError) -> str:
    why = str(error)
    if isinstance(error, ValidationError):
        why = first_problem(error)
    return f"the line is damaged: {why}"


@dataclass(frozen=True)
class _Gap:
    lost: int


_HEADERS, _EVENTS = TypeAdapter(RecordingHeader), TypeAdapter(RecordedEvent)
_GAPS = TypeAdapter(_Gap)
