"""Recordings of sessions: read them, and play them again.

A server writes them (``openenv serve --record DIRECTORY``, `openenv.execution.recording`).
"""

from openenv.execution.recording import RecordingOptions
from openenv.rollouts.replays.reading import (
    Episode,
    Event,
    Header,
    RecordedError,
    count_events,
    read,
    read_header,
)
from openenv.rollouts.replays.replaying import Divergence, ReplayReport, replay

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
