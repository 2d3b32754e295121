"""Recordings of sessions: read them, and play them again.

A server writes them (``openenv serve --record DIRECTORY``, `openenv.sessions.recording`).
"""

from openenv.recording.reading import (
    Episode,
    Event,
    Header,
    RecordedError,
    count_events,
    read,
    read_header,
)
from openenv.recording.replaying import Divergence, ReplayReport, replay
from openenv.sessions.recording import RecordingOptions

__all__ = [
    "Divergence",
    "Episode",
    "Event",
    "Header",
    "RecordedError",
    "RecordingOptions",
    "ReplayReport",
    "count_events",
    "read",
    "read_header",
    "replay",
]
