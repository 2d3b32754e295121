"""Incidents: unintended exceptions, with an id for the log and the peer.

The log has the traceback under an id. The peer gets the id and the name of the class; it gets the
text, which may hold confidential data, only from a server that runs with ``debug``. An error whose
class has a row of its own in `openenv.errors.OUTWARD` is not an incident: its text is for the peer.

An incident is an attribute of its exception, and travels with it from a worker process.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from openenv._internal.redaction import redact, redacted
from openenv.errors import (
    EnvironmentFactoryError,
    InvalidReturnError,
    OpenEnvError,
    Refused,
    outward,
    speaks,
    words,
)

logger = logging.getLogger(__name__)

ID_BYTES = 6
_ATTRIBUTE = "_openenv_incident"
SEE_LOG = "the server's log has the details (or start it with --debug)"


class Incident(NamedTuple):
    """An unintended exception.

    Attributes:
        id: The id of the log entry.
        type: The name of the exception's class.
        what: A description without the exception's text: ``KeyError in step``.
        text: The exception's text, without secrets.
    """

    id: str
    type: str
    what: str
    text: str


def incident_of(error: BaseException) -> Incident | None:
    """Return the incident of an exception; None before `note`."""
    incident: Incident | None = error.__dict__.get(_ATTRIBUTE)
    return incident


def note(error: BaseException, incident: Incident) -> None:
    """Attach an incident to an exception."""
    error.__dict__[_ATTRIBUTE] = incident  # works for frozen classes too


def log_incident(
    error: BaseException,
    where: str = "",
    *,
    log: logging.Logger = logger,
    level: int = logging.ERROR,
    about: Mapping[str, Any] | None = None,
) -> Incident:
    """Create an incident for an exception, and log the traceback under the incident's id.

    Args:
        error: The exception; an earlier incident of it is replaced.
        where: The method that raised the exception.
        log: The logger.
        level: The log level.
        about: Further fields of the log entry, such as the session.
    """
    name = _name(error)
    if isinstance(error, EnvironmentFactoryError):
        what = f"Environment factory '{error.factory_name}' failed to create instance: {name}"
    else:
        what = f"{name} in {where}" if where else name
    incident = Incident(os.urandom(ID_BYTES).hex(), name, what, redact(words(error)))
    note(error, incident)
    if not log.isEnabledFor(level):
        return incident
    if isinstance(error, EnvironmentFactoryError) and error.__cause__ is not None:
        error = error.__cause__
    raised = (type(error), error, error.__traceback__)
    session = (about or {}).get("session_id")
    of = f" of session {session}" if session is not None else ""
    text = f"incident {incident.id}: {what}{of}"
    extra = {**(about or {}), "incident": incident.id}
    record = log.makeRecord(log.name, level, __file__, 0, text, (), raised, None, extra)
    # All formatters use this text instead of formatting the exception themselves.
    record.exc_text = redact("".join(traceback.format_exception(*raised)).rstrip("\n"))
    log.handle(record)
    return incident


def _name(error: BaseException) -> str:
    """Return the name of the raised class, also if the exception is wrapped."""
    cause = error.__cause__
    is_wrapped = not isinstance(cause, Exception) or isinstance(cause, StopIteration)
    if cause is not None and (is_wrapped or isinstance(error, EnvironmentFactoryError)):
        known = incident_of(cause)
        return known.type if known is not None else type(cause).__name__
    return type(error).__name__


def is_incident(error: BaseException) -> bool:
    """Return whether an exception is unintended, so that the text is not for the peer."""
    if isinstance(error, EnvironmentFactoryError):
        return error.__cause__ is None or is_incident(error.__cause__)
    return not speaks(error)


def describe_error(error: BaseException, *, debug: bool = False) -> str:
    """Return the text about an error for the peer; log the incident first if needed."""
    if not is_incident(error):
        cause = error.__cause__ if isinstance(error, EnvironmentFactoryError) else None
        if cause is None:
            return redact(words(error))
        is_told = isinstance(cause, Refused | InvalidReturnError)
        why = words(cause) if is_told else type(cause).__name__
        return redact(f"{words(error)} {why}")
    incident = incident_of(error) or log_incident(error)
    if debug:
        return incident.text
    return f"{incident.what}; incident {incident.id}: {SEE_LOG}"


def error_data(error: BaseException, *, debug: bool = False) -> dict[str, Any]:
    """Return the ``data`` of an error frame; the table in `openenv.errors` decides the code.

    Args:
        error: The exception.
        debug: Include the text of an incident.
    """
    data: dict[str, Any] = {
        "message": describe_error(error, debug=debug),
        "code": outward(error).code.value,
    }
    if isinstance(error, OpenEnvError) and speaks(error):
        data |= redacted(error.details())
    incident = incident_of(error)
    if incident is not None and is_incident(error):
        data |= {"type": incident.type, "incident": incident.id}
    return data
