"""Reading recordings, episode by episode."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic_core import from_json

from openenv.errors import RecordingError
from openenv.sessions.recording import FORMAT, FORMAT_VERSION, SUFFIX

__all__ = [
    "Episode",
    "Event",
    "Header",
    "RecordedError",
    "count_events",
    "read",
    "read_header",
]

CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class Header:
    """What the first line of a recording says.

    Attributes:
        environment: The environment's name.
        target: How to find it again (see `openenv.server.loading`); None where nobody knows.
        schema: A digest of the models of its actions and observations.
        openenv: The version that wrote it.
        session_id: The session.
        time: When, in seconds since the epoch.
        part: Which part of the recording it begins, from 0.
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
    """What went wrong in a reset or a step: the class of the error, its wire code, its text."""

    type: str
    code: str
    message: str


@dataclass(frozen=True)
class Event:
    """One reset, step or restore. Values are those of JSON.

    Attributes:
        kind: Which of them.
        step: The number of the step in its episode; 0 for the others.
        time: When it was answered, in seconds since the epoch.
        seconds: How long the environment took.
        seed: The seed of a reset.
        action: The action of a step.
        arguments: Further arguments.
        snapshot: The bytes of a restore.
        observation: What was seen, without reward, done and truncated; None after an error.
        reward: The reward.
        terminated: The episode ended by itself.
        truncated: It was cut off.
        info: Diagnostics.
        metadata: What was sent beside the observation.
        ignored_arguments: Names of arguments that were not taken.
        state: The state after a restore.
        error: What went wrong instead.
        unrecorded: Why some of this could not be written down; else None.
    """

    kind: Literal["reset", "step", "restore"]
    step: int
    time: float
    seconds: float
    seed: Any = None
    action: Any = None
    arguments: dict[str, Any] = field(default_factory=dict)
    snapshot: bytes | None = None
    observation: Any = None
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    ignored_arguments: tuple[str, ...] = ()
    state: Any = None
    error: RecordedError | None = None
    unrecorded: str | None = None

    @property
    def done(self) -> bool:
        """The episode is over."""
        return self.terminated or self.truncated

    @property
    def begins(self) -> bool:
        """An episode begins with it."""
        return self.kind != "step" and self.error is None


@dataclass
class Episode:
    """What was recorded between one reset, or restore, and the next.

    Attributes:
        number: Which one of its session, from 1; 0 is what came before the first.
        events: In their order; the first one begins the episode, where `is_whole`.
        lost: How many events are missing after the last one. What comes after them is another
            `Episode` of the same number.
        is_torn: The recording breaks off here, in the middle of a line: its server was killed.
    """

    number: int
    events: list[Event] = field(default_factory=list)
    lost: int = 0
    is_torn: bool = False

    @property
    def is_whole(self) -> bool:
        """It is there from its beginning."""
        return bool(self.events) and self.events[0].begins

    @property
    def is_done(self) -> bool:
        """It came to its end."""
        return bool(self.events) and self.events[-1].done

    @property
    def seed(self) -> Any:
        """The seed that it was begun with; None where there was none."""
        return self.events[0].seed if self.events else None

    @property
    def total_reward(self) -> float:
        """The sum of its rewards."""
        return sum(event.reward or 0 for event in self.events)


def read(path: str | os.PathLike[str]) -> Iterator[Episode]:
    """Read the episodes of a recording, those in its further parts (``.1``, ``.2``) too.

    Raises:
        OSError: The file cannot be read.
        RecordingError: It is no recording, or is damaged. That its last line is cut off is no
            damage: its server was killed.
    """
    episode: Episode | None = None
    for line in _events(Path(path)):
        if line is None:
            if episode is not None:
                episode.is_torn = True
        elif line["event"] == "gap":
            if episode is not None:
                episode.lost = line["lost"]
                yield episode
            episode = None
        elif line["event"] != "end":
            number, event = line["episode"], _event(line)
            if episode is None or event.begins:
                if episode is not None:
                    yield episode
                episode = Episode(number)
            episode.events.append(event)
    if episode is not None:
        yield episode


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a recording says of itself.

    Raises:
        OSError: The file cannot be read.
        RecordingError: It is no recording.
    """
    with Path(path).open("rb") as file:
        return _header(Path(path), file.readline())


def count_events(path: str | os.PathLike[str]) -> int:
    """Count the lines of a recording that are not headers, without reading what they say.

    Raises:
        OSError: The file cannot be read.
    """
    lines = 0
    for part in _parts(Path(path)):
        with part.open("rb") as file:
            lines += sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))
            lines -= 1
    return max(lines, 0)


# ------------------------------------------------------------------ lines


def _parts(path: Path) -> Iterator[Path]:
    """A file, and those that continue it."""
    yield path
    named = re.fullmatch(rf"(.*{re.escape(SUFFIX)})(?:\.(\d+))?", path.name)
    if named is None:
        return
    number = int(named[2] or 0) + 1
    while (part := path.with_name(f"{named[1]}.{number}")).exists():
        yield part
        number += 1


def _events(path: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of all parts but their headers; None at last, where the last one is cut off."""
    parts = list(_parts(path))
    for part in parts:
        with part.open("rb") as file:
            _header(part, file.readline())
            for number, line in enumerate(file, 2):
                if line.endswith(b"\n"):
                    yield _line(part, number, line)
                elif part is parts[-1]:
                    yield None
                else:
                    raise RecordingError(str(part), number, "the line is cut off")


def _line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = from_json(line)
        known = {"step", "reset", "restore", "gap", "end"}
        if not isinstance(found, dict) or found.get("event") not in known:
            raise ValueError("it is no event")
    except ValueError as error:
        raise RecordingError(str(path), number, f"the line is damaged: {error}") from error
    return found


def _header(path: Path, line: bytes) -> Header:
    try:
        found = from_json(line)
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError("it does not begin as one")
    except ValueError as error:
        raise RecordingError(str(path), None, f"this is no recording: {error}") from error
    if found.pop("version", None) != FORMAT_VERSION:
        raise RecordingError(str(path), 1, "it was written by a later version of openenv")
    fields: dict[str, Any] = {name: found.get(name) for name in Header.__dataclass_fields__}
    return Header(**fields)


_FIELDS = frozenset(Event.__dataclass_fields__)


def _event(line: dict[str, Any]) -> Event:
    fields = {name: value for name, value in line.items() if name in _FIELDS}
    if line.get("error") is not None:
        fields["error"] = RecordedError(**line["error"])
    if isinstance(line.get("snapshot"), str):
        fields["snapshot"] = base64.b64decode(line["snapshot"])
    if "ignored_arguments" in line:
        fields["ignored_arguments"] = tuple(line["ignored_arguments"])
    return Event(kind=line["event"], **fields)
