"""The recording options of an application."""

from __future__ import annotations

import os
from typing import Any

from openenv.execution.recording import RecordingOptions, Recordings
from openenv.manifest.directories import absolute_target
from openenv.server.loading import TargetError
from openenv.server.workers import managers_of
from openenv.settings import recording_directory, recording_limits

Record = str | os.PathLike[str] | RecordingOptions


def recording_options(
    record: Record | None, *, every_session: bool = True
) -> RecordingOptions | None:
    """Return the recording options from an argument or OPENENV_RECORD; None for no recording.

    Raises:
        ValueError: A limit in the environment variables is not a number.
    """
    if isinstance(record, RecordingOptions):
        return record
    directory = recording_directory() if record is None else record
    if directory is None:
        return None
    return RecordingOptions(directory, every_session, *recording_limits())


def record_sessions(app: Any, target: str, options: RecordingOptions) -> None:
    """Record the sessions of `app`, which `target` names.

    Raises:
        TargetError: `app` serves no environment made by `create_app` or `HTTPEnvServer`.
    """
    managers = managers_of(app)
    if not managers:
        raise TargetError(f"{target} serves no environment whose sessions could be recorded")
    for manager in managers:
        manager.record_to(Recordings(options, manager.spec, absolute_target(target)))
