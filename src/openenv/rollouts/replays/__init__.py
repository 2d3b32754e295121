"""Recordings of sessions: reading and replaying.

A server writes recordings (``openenv serve --record DIRECTORY``, `openenv.execution.recording`).
Read ``reading.py`` first.
"""

from openenv.execution.recording import RecordingOptions
from openenv.rollouts.replays.reading import (
    RecordedEpisode,
    RecordedError,
    RecordedEvent,
    RecordingHeader,
    count_events,
    read,
    read_header,
)
from openenv.rollouts.replays.replaying import Divergence, ReplayReport, replay

__all__ = [
    "Divergence",
    "RecordedEpisode",
    "RecordedEvent",
    "RecordingHeader",
    "RecordedError",
    "RecordingOptions",
    "ReplayReport",
    "count_events",
    "read",
    "read_header",
    "replay",
]
