"""Recording of calls in a JSON Lines file, immediately after each call.

Tokens and messages that a call shares with its parent are not written again. The file therefore
grows with new content only, and it survives a crash.

Calls that cannot be written, for example because the disk is full, are kept in memory and written
with the next call. An agent's call fails only if more than `MAX_KEPT_BYTES` (256 MiB) are waiting.
That call is lost; a call that continues it is written in full, as the first of a conversation.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any

from openenv._internal.json import read_json
from openenv.capture.graph import TurnNode
from openenv.capture.sessions import CaptureSession, FailedCall
from openenv.rollouts.lines import append, cut_torn_line

__all__ = ["CALLS", "Recorder", "read_sessions"]

logger = logging.getLogger(__name__)

CALLS = "calls.jsonl"
MAX_KEPT_BYTES = 2**28  # waiting in memory while the file cannot be written
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_OF_SESSION = ("created_at", "metadata", "capture_level", "purpose", "sampling")


class Recorder:
    """A callback that appends each call to a file in a directory.

    Args:
        directory: The directory; created if missing. An existing file is continued after an
            incomplete last line has been removed.

    Raises:
        OSError: The file cannot be opened for writing.
    """

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory) / CALLS
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, _FLAGS, 0o666)
        cut_torn_line(self.path, self._file)
        self._unwritten: list[bytes] = []
        self._known: set[str] = set()
        self._lost: set[str] = set()  # ids of lost calls
        self._lock = threading.Lock()

    def __call__(self, session: CaptureSession, made: TurnNode | FailedCall) -> None:
        """Write a call, together with calls that could not be written before.

        Raises:
            OSError: The calls cannot be written and too many are waiting; this call is lost.
        """
        with self._lock:
            lines = [self._line(session, made)]
            is_new = session.session_id not in self._known
            if is_new:
                self._known.add(session.session_id)
                told = {name: getattr(session, name) for name in _OF_SESSION}
                lines.insert(0, {"type": "session", "session_id": session.session_id, **told})
            text = "".join(json.dumps(one, ensure_ascii=False, default=str) + "\n" for one in lines)
            self._unwritten.append(text.encode("utf-8", "replace"))
            try:
                self._write()
            except OSError as error:
                if sum(map(len, self._unwritten)) > MAX_KEPT_BYTES:
                    self._unwritten.pop()
                    if is_new:
                        self._known.discard(session.session_id)
                    if isinstance(made, TurnNode):
                        self._lost.add(made.node_id)
                    why = f"{error.strerror}; at most {MAX_KEPT_BYTES} bytes are kept in memory"
                    raise OSError(error.errno, why, str(self.path)) from error
                if len(self._unwritten) == 1:
                    logger.error("%s; calls are kept in memory until they can be written", error)

    def close(self) -> None:
        """Write waiting calls and close the file.

        Raises:
            OSError: The waiting calls cannot be written and are missing from the file.
        """
        with self._lock:
            if self._file < 0:
                return
            try:
                self._write()
            except OSError as error:
                why = f"{error.strerror}; {len(self._unwritten)} calls are missing in it"
                raise OSError(error.errno, why, str(self.path)) from error
            finally:
                os.close(self._file)
                self._file = -1

    def _write(self) -> None:
        if self._unwritten:
            size = os.lseek(self._file, 0, os.SEEK_END)
            append(self.path, self._file, b"".join(self._unwritten), size)
        if len(self._unwritten) > 1:
            logger.warning("%s is written again; nothing is missing in it", self.path)
        self._unwritten.clear()

    def _line(self, session: CaptureSession, made: TurnNode | FailedCall) -> dict[str, Any]:
        if isinstance(made, FailedCall):
            return {"type": "failure", "session_id": session.session_id, **asdict(made)}
        told = dict(vars(made))
        for name in ("parent_id", "retry_of"):
            if told[name] in self._lost:
                told[name] = None
        parent = session.graph.get(told["parent_id"]) if told["parent_id"] is not None else None
        tokens = messages = 0
        if parent is not None:
            told["prompt_ids"] = made.context_ids(parent)
            tokens = len(made.prompt_ids) - len(told["prompt_ids"])
            pairs = zip(made.request_messages, parent.request_messages, strict=False)
            messages = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
            told["request_messages"] = made.request_messages[messages:]
        shared = {"shared_tokens": tokens, "shared_messages": messages}
        return {"type": "turn", "session_id": session.session_id, **told, **shared}


def read_sessions(directory: str | Path) -> list[CaptureSession]:
    """Read the sessions that a `Recorder` wrote to a directory.

    An incomplete last line is left out.

    Raises:
        FileNotFoundError: The directory has no ``calls.jsonl``.
        ValueError: A line is invalid; the message names it.
    """
    path = Path(directory) / CALLS
    sessions: dict[str, CaptureSession] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    where = str(path)
    try:
        for number, line in enumerate(lines[:-1], 1):  # the last is empty or incomplete
            where = f"{path}, line {number}"
            _add_entry(sessions, read_json(line))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
    return list(sessions.values())


def _add_entry(sessions: dict[str, CaptureSession], told: dict[str, Any]) -> None:
    kind, name = told.pop("type"), told.pop("session_id")
    if kind == "session":
        sessions.setdefault(name, CaptureSession(name, **told))
    elif kind == "failure":
        sessions[name].failures.append(FailedCall(**told))
    elif kind == "turn":
        graph = sessions[name].graph
        tokens, messages = told.pop("shared_tokens"), told.pop("shared_messages")
        if told["parent_id"] is not None:
            parent = graph.get(told["parent_id"])
            told["prompt_ids"] = parent.end_ids[:tokens] + told["prompt_ids"]
            told["request_messages"] = parent.request_messages[:messages] + told["request_messages"]
        graph.add_turn(TurnNode(**told))
    else:
        raise ValueError(f"type={kind!r}: expected session, turn or failure")
