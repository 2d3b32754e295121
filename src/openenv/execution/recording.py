"""Recordings: every episode of a session as lines of JSON in a file.

    DIRECTORY/ENVIRONMENT/20260131T120000Z-SESSION.jsonl

The first line is a header. Each other line is an event: a reset, a step, a restore, a gap, or the
end of the session. `openenv.rollouts.replays` reads the files.

One thread writes for all sessions of a server. Events reach it through a bounded queue, so a slow
or full disk stalls no session: events that cannot be written are counted, also in the metrics. The
log reports once that events are lost, and once how many were lost, when the disk again has room for
a line as large as the one that it refused. If events are missing in a file, a gap tells how
many. Until the gap can be written, the file is in debt: the thread tries again every half a second,
also for sessions that have ended, and a last time when the server ends. If there is no room even
then, the log names the files that lack events. These files have no line for the end of the session,
from which a reader can tell.

A line is cut only if the process or the machine ends, and then it is the last line.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pydantic import PydanticUserError, TypeAdapter

from openenv._internal.version import version
from openenv.environment import Environment
from openenv.errors import words
from openenv.execution.recorded import Recorded, Recording, kind_of, text_of_failure
from openenv.execution.spec import EnvironmentSpec

if TYPE_CHECKING:
    from openenv.execution.session import QueuedCall

logger = logging.getLogger(__name__)

FORMAT, FORMAT_VERSION = "openenv-recording", 1
SUFFIX = ".jsonl"

MEBIBYTE = 2**20
MAX_WAITING_BYTES = 64 * MEBIBYTE
# How long lines are gathered before they are written, all of a file together.
PACE_S = 0.01
CLOSE_GRACE_S = 5.0
WRITTEN_WAIT_S = 0.5  # maximum time that a closing session waits for its file
MAX_OPEN_FILES = 256  # connections need the other descriptors
WRITE_BYTES = MEBIBYTE  # written at once, unless a line is longer
# The size of a directory is checked again whenever this share of its limit was written. It is then
# reduced to the second share. Together they stay below the limit.
LOOK_SHARE, KEPT_SHARE = 0.05, 0.9
LOOK_AGAIN_S = 5.0  # interval of checks if no file may be removed
# Initial and maximum pause between attempts to note missing events in files. If a disk has room for
# a gap but not for events, attempts without pause would fill it with gaps.
SETTLE_S, LATEST_SETTLE_S = 0.5, 8.0
SETTLED_AT_ONCE = 64  # files per attempt
MAX_DEBTORS = 10_000  # files, each of which takes half a kilobyte of memory
NAMED_FILES = 10  # in one log line


@dataclass(frozen=True)
class RecordingOptions:
    """The directory of recordings, and the limits on disk space.

    Attributes:
        directory: The directory; it is created if it does not exist.
        every_session: Record all sessions; otherwise only those that request it.
        max_file_bytes: A file that has grown to this size continues in another one, ``.1``,
            ``.2`` and so on.
        max_total_bytes: Limit for all recordings in the directory. The oldest recordings that are
            no longer being written are removed.

    Raises:
        ValueError: A limit is not positive.
    """

    directory: str | os.PathLike[str]
    every_session: bool = True
    max_file_bytes: int = 256 * MEBIBYTE
    max_total_bytes: int = 10 * 1024 * MEBIBYTE

    def __post_init__(self) -> None:
        for name in ("max_file_bytes", "max_total_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")


class Recordings:
    """Records the sessions of a server; used from a single event loop.

    Args:
        target: The target with which a replay finds the environment (see `openenv.server.loading`);
            by default the class itself, if it can be imported.
    """

    def __init__(
        self, options: RecordingOptions, spec: EnvironmentSpec, target: str | None = None
    ) -> None:
        self.options = options
        self.spec = spec
        self.target = target or _importable(spec.factory)
        self.directory = Path(options.directory) / _file_name(spec.name)
        self.room = _Room(Path(options.directory), options.max_total_bytes)
        self.losses = _LossLog(self.directory, Path(options.directory))
        self._queue: deque[_RecordingEntry] = deque()
        # Futures that are set once everything is written, and whether the thread then ends.
        self._waiters: deque[tuple[asyncio.Future[None], bool]] = deque()
        self.open_files: OrderedDict[_File, None] = OrderedDict()  # used by the writer's thread
        self._debtors: OrderedDict[_File, None] = OrderedDict()  # used by the writer's thread
        self._settle_at, self._settle_pause = 0.0, SETTLE_S
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._head: dict[str, Any] = {}
        # The first is changed only on the event loop, the second only by the writer's thread.
        self._put_bytes = self._taken_bytes = 0

    @property
    def lost(self) -> int:
        """The number of events that could not be written so far."""
        return self.losses.lost

    @property
    def debtors(self) -> int:
        """The number of files that lack events without a note of it."""
        return len(self._debtors)

    def open(self, session_id: str) -> SessionRecorder:
        """Record a session. The file appears with the first event."""
        return SessionRecorder(self, _File(self, session_id))

    # ------------------------------------------------------------------ on the event loop

    def put(self, file: _File, line: bytes, lost: int = 0, *, is_end: bool = False) -> bool:
        """Queue a line, before which `lost` events are missing; return False if too much waits.

        The line for the end, which is small, is always queued, since it reports what is missing.
        """
        if self._waiting_bytes > MAX_WAITING_BYTES and not is_end:
            self.losses.count("the disk is too slow", 1)
            return False
        self._put_bytes += len(line)
        self._queue.append(_RecordingEntry(file, line, lost, is_end))
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None or not self._thread.is_alive():
            self._start()
        return True

    @property
    def _waiting_bytes(self) -> int:
        return self._put_bytes - self._taken_bytes

    def _start(self) -> None:
        thread = threading.Thread(target=self._write, name="openenv-recording", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads are allowed; the next line tries again
            self.losses.report(str(error))
        else:
            self._thread = thread

    async def written(self) -> None:
        """Wait until all queued lines are written or lost, for at most 0.5 s."""
        if self._thread is not None and self._thread.is_alive():
            await self._is_written(WRITTEN_WAIT_S)

    async def _is_written(self, timeout_s: float, *, is_last: bool = False) -> bool:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((waiter, is_last))
        self._hurry.set()
        self._wake.set()
        _, late = await asyncio.wait([waiter], timeout=timeout_s)
        return not late

    async def aclose(self) -> None:
        """Write everything, within 5 s, and end the thread."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            if await self._is_written(CLOSE_GRACE_S, is_last=True):
                thread.join()
                return
            why = "the disk is stuck"
        elif self._queue:
            why = "no thread could be started to write them"
        else:
            return
        logger.error(
            "recordings in %s are incomplete: %s; %d events wait to be written",
            self.directory,
            why,
            sum(not entry.is_end for entry in list(self._queue)),
        )

    # ------------------------------------------------------------------ on the writer's thread

    def _write(self) -> None:
        is_ending = False
        while not is_ending:
            is_settling = self._debtors or self.losses.is_reported
            if self._wake.wait(self._settle_pause if is_settling else None):
                self._hurry.wait(PACE_S)
            self._wake.clear()
            self._hurry.clear()
            waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]
            is_ending = any(is_last for _, is_last in waiters)
            self._write_waiting()
            if is_ending:
                self._settle(len(self._debtors), is_last=True)
            elif time.monotonic() > self._settle_at:
                self._settle(SETTLED_AT_ONCE)
            for future, _ in waiters:
                with contextlib.suppress(RuntimeError):  # its loop has closed, so no caller waits
                    future.get_loop().call_soon_threadsafe(_mark_done, future)

    def _write_waiting(self) -> None:
        by_file: dict[_File, list[_RecordingEntry]] = {}
        for _ in range(len(self._queue)):
            entry = self._queue.popleft()
            by_file.setdefault(entry.file, []).append(entry)
        is_well = has_failed = False
        for file, entries in by_file.items():
            is_written = file.write(entries)
            is_well, has_failed = is_well or is_written, has_failed or not is_written
            self._taken_bytes += sum(len(entry.line) for entry in entries)
            self._note_debt(file)
        if has_failed:
            self._settle_at = time.monotonic() + self._settle_pause
        elif is_well:
            self._settle_at, self._settle_pause = 0.0, SETTLE_S
        if is_well and not self._debtors and self._waiting_bytes < MAX_WAITING_BYTES // 2:
            self.losses.end()

    def _settle(self, most: int, *, is_last: bool = False) -> None:
        """Try to note missing events in files, beginning with the file not tried for longest.

        With `is_last`, log which files lack events without a note of it.
        """
        if self._debtors or self.losses.is_reported:
            self._settle_pause = min(2 * self._settle_pause, LATEST_SETTLE_S)
            self._settle_at = time.monotonic() + self._settle_pause
        for _ in range(min(most, len(self._debtors))):
            file, _ = self._debtors.popitem(last=False)
            file.settle()
            self._note_debt(file)
        if not self._debtors:
            if is_last or self._waiting_bytes < MAX_WAITING_BYTES // 2:
                self.losses.end(is_last=is_last)
        elif is_last:
            files = list(self._debtors)
            logger.error(
                "recordings in %s are incomplete, and %d of them cannot say so; %d events are "
                "missing in them: %s%s",
                self.directory,
                len(files),
                sum(file.missing for file in files),
                ", ".join(file.name for file in files[:NAMED_FILES]),
                ", ..." if len(files) > NAMED_FILES else "",
            )

    def _note_debt(self, file: _File) -> None:
        if not file.is_in_debt:
            self._debtors.pop(file, None)
            return
        self._debtors.setdefault(file)
        if len(self._debtors) > MAX_DEBTORS:
            # If its session continues, the next line that can be written reports the gap anyway.
            forgotten, _ = self._debtors.popitem(last=False)
            logger.error("%s lacks events, and will not say so", forgotten.name)

    def note_open(self, file: _File) -> None:
        """Note that a file is open, and close files not written to for longest beyond the limit."""
        self.open_files[file] = None
        while len(self.open_files) > MAX_OPEN_FILES:
            next(iter(self.open_files)).close()

    def header(self, session_id: str, part: int) -> bytes:
        """Return the first line of a file."""
        if not self._head:
            self._head = {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "environment": self.spec.name,
                "target": self.target,
                "schema": schema_digest(self.spec),
                "openenv": version(),
            }
        own = {"session_id": session_id, "part": part, "time": time.time()}
        return msgspec.json.encode({**self._head, **own}) + b"\n"


def _mark_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _RecordingEntry(NamedTuple):
    """A line to write.

    Attributes:
        file: The file to write to.
        line: An event, or the end.
        lost: Number of events missing before the line; they are already counted as lost.
        is_end: The line is the end of the session rather than an event.
    """

    file: _File
    line: bytes
    lost: int
    is_end: bool


class Follower:
    """A subscriber to the events of a session.

    Args:
        hear: Called on the event loop with each line, and with None when the session has ended. It
            must return quickly.
    """

    def __init__(self, recorder: SessionRecorder, hear: Callable[[bytes | None], None]) -> None:
        self._recorder = recorder
        self.hear = hear
        recorder.followers.append(self)

    def stop(self) -> None:
        """Stop receiving events."""
        if self in self._recorder.followers:
            self._recorder.followers.remove(self)


class SessionRecorder:
    """Records the events of a session for a file or for followers; used on the session's event
    loop.

    Without a file or followers the recorder costs nothing.

    Attributes:
        episode: The number of the episode, which begins with a reset or a restore; 0 before that.
        step: The number of the last step in the episode.
        followers: The followers of the session.
    """

    __slots__ = ("_file", "_has_begun", "_lost", "_recordings", "episode", "followers", "step")

    def __init__(
        self, recordings: Recordings | None = None, file: _File | None = None, step: int = 0
    ) -> None:
        self._recordings, self._file = recordings, file
        self._has_begun = False
        self._lost = 0  # events missing since the last queued line
        self.followers: list[Follower] = []
        self.episode, self.step = 0, step

    def begin(self, work: QueuedCall) -> None:
        """Make a command's encoder record the outcome, if there is a file or a follower."""
        if self._file is not None or self.followers:
            work.encode = Recording(work.encode)

    def finish(self, work: QueuedCall) -> None:
        """Record the outcome of a call, and restore the call's plain result."""
        kind = kind_of(work.command)
        if kind is None:
            return
        if type(work.result) is Recorded:
            work.result, text = work.result.payload, work.result.text
        elif work.error is not None:
            text = text_of_failure(work.command, work.error, work.seconds)
        else:
            return  # the call began before the session was recorded
        if kind == b"step":
            self.step += 1
        elif work.error is None:
            self.episode, self.step = self.episode + 1, 0
        place = (kind, self.episode, self.step, time.time(), text)
        line = b'{"event":"%b","episode":%d,"step":%d,"time":%.6f,%b}\n' % place
        for follower in self.followers:
            follower.hear(line)
        self._put(line)

    def _put(self, line: bytes, *, is_end: bool = False) -> None:
        if self._recordings is not None and self._file is not None:
            self._has_begun = True
            is_taken = self._recordings.put(self._file, line, self._lost, is_end=is_end)
            self._lost = 0 if is_taken else self._lost + 1

    def end(self) -> None:
        """Note that the session is closed."""
        followers, self.followers = self.followers, []
        for follower in followers:
            follower.hear(None)
        if self._has_begun:
            self._put(b'{"event":"end","time":%.6f}\n' % time.time(), is_end=True)

    async def written(self) -> None:
        """Wait until the file is complete, for at most 0.5 s if the disk is slow."""
        if self._recordings is not None and self._has_begun:
            await self._recordings.written()


def gap(lost: int) -> bytes:
    """Return the line that replaces missing events."""
    return b'{"event":"gap","lost":%d,"time":%.6f}\n' % (lost, time.time())


class _LossLog:
    """Counts lost events, and logs each loss twice: when it begins and when it is over.

    Args:
        directory: The directory of the recordings, for the log.
        disk: A directory on the same disk.
    """

    def __init__(self, directory: Path, disk: Path) -> None:
        self.lost = 0
        self.is_reported = False  # a loss has begun and is not over
        self._lost_before = self._refused_bytes = 0
        self._directory = directory
        self._disk = disk
        self._lock = threading.Lock()

    def count(self, why: str, events: int, refused_bytes: int = 0) -> None:
        """Count lost events; `refused_bytes` is the size of the line that the disk refused."""
        with self._lock:
            self.lost += events
            self._refused_bytes = refused_bytes or self._refused_bytes
        self.report(why)

    def report(self, why: str) -> None:
        """Log a problem, unless a problem is already logged."""
        with self._lock:
            was_reported, self.is_reported = self.is_reported, True
        if not was_reported:
            logger.error(
                "recordings in %s cannot be written: %s. Sessions go on; what is lost is counted",
                self._directory,
                why,
            )

    def end(self, *, is_last: bool = False) -> None:
        """Log how many events were lost, if the loss is over or the server ends.

        Gaps fit on a disk that refuses events, so the loss is over only when there is room for the
        refused line. Otherwise a full disk would be logged as a loss for each of its files.
        """
        if not self.is_reported or not (is_last or self._has_room()):
            return
        with self._lock:
            self.is_reported, self._refused_bytes = False, 0
            lost, self._lost_before = self.lost - self._lost_before, self.lost
        logger.warning(
            "recordings in %s are written again; %d events were lost", self._directory, lost
        )

    def _has_room(self) -> bool:
        try:
            status = os.statvfs(self._disk)
        except OSError:  # the directory does not exist
            return True
        return status.f_bavail * status.f_frsize >= self._refused_bytes


# ------------------------------------------------------------------ files


class _File:
    """The file of a session, in parts; used from the writer's thread.

    An open file is locked, so that no server removes it to make room.

    Attributes:
        missing: Number of events missing since the last line that could be written.
    """

    def __init__(self, recordings: Recordings, session_id: str) -> None:
        self._recordings = recordings
        self._session_id = session_id
        self._name = ""
        self._descriptor: int | None = None
        self._part = 0
        self._size = self._head_size = 0
        self.missing = 0
        self._end: bytes | None = None  # the line for the end, if it could not be written
        self._has_rest = False  # part of a line is written that could not be removed again
        self._is_left = False  # a file without a header is left that could not be removed
        self._why = ""  # why the latest line could not be written

    @property
    def name(self) -> str:
        """The name of the file, or of the session if there is no file."""
        return self._path.name if self._name else f"session {self._session_id}"

    @property
    def is_in_debt(self) -> bool:
        """Whether events are missing in the file that it does not note."""
        return self.missing > 0 or self._end is not None

    def write(self, entries: list[_RecordingEntry]) -> bool:
        """Write lines, count those that the disk refuses, and return whether the last one fit."""
        is_well = False
        for chunk in _chunks(entries):
            is_well = self._is_appended(chunk) or self._is_appended_singly(chunk)
        if entries[-1].is_end:
            self._end = None if is_well else entries[-1].line
            self.close()
        return is_well

    def settle(self) -> None:
        """Try to note the missing events and the end of the session."""
        if self._can_append(self._end or b""):
            if self._end is not None:
                self.close()
            self._end = None

    def _is_appended(self, entries: list[_RecordingEntry]) -> bool:
        return self._can_append(
            b"".join(gap(one.lost) + one.line if one.lost else one.line for one in entries)
        )

    def _is_appended_singly(self, entries: list[_RecordingEntry]) -> bool:
        """Append lines until one does not fit, and count the rest as missing."""
        kept = next((i for i, one in enumerate(entries) if not self._is_appended([one])), None)
        if kept is None:
            return True
        missing = entries[kept:]
        events = sum(not one.is_end for one in missing)
        self.missing += events + sum(one.lost for one in missing)
        self._recordings.losses.count(self._why, events, len(missing[0].line))
        return False

    def _can_append(self, data: bytes) -> bool:
        try:
            self._append(data)
        except Exception as error:  # sessions must continue after any error
            self._why = words(error)
            return False
        return True

    def _append(self, data: bytes) -> None:
        if self.missing:
            data = gap(self.missing) + data
        limit = self._recordings.options.max_file_bytes
        if self._size > self._head_size and self._size + len(data) > limit:
            self._end_part()
        self._recordings.room.take(len(data))
        if self._descriptor is not None and not os.fstat(self._descriptor).st_nlink:
            self._end_part()  # the file or its directory has been removed
        if self._descriptor is None and not self._is_resumed():
            self._begin()
        self._recordings.open_files.move_to_end(self)
        self._write_whole(data)
        self.missing = 0

    @property
    def _path(self) -> Path:
        name = f"{self._name}.{self._part}" if self._part else self._name
        return self._recordings.directory / name

    def _begin(self) -> None:
        self._name = self._name or time.strftime(
            f"%Y%m%dT%H%M%SZ-{_file_name(self._session_id)}{SUFFIX}", time.gmtime()
        )
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        header = self._recordings.header(self._session_id, self._part)
        self._recordings.room.take(len(header))
        fresh = os.O_TRUNC if self._is_left else os.O_EXCL
        descriptor, self._size = os.open(self._path, FLAGS | os.O_CREAT | fresh, 0o600), 0
        try:
            self._hold(descriptor)
            self._write_whole(header)
        except BaseException:
            self.close()
            self._is_left = True
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
                self._is_left = False
            self._size, self._has_rest = 0, False
            raise
        self._is_left = False
        self._head_size = self._size

    def _is_resumed(self) -> bool:
        """Open the file again; return False if it does not exist or was removed to make room."""
        if not self._size:
            return False
        try:
            self._hold(os.open(self._path, FLAGS))
        except FileNotFoundError:
            self._end_part()
            return False
        return True

    def _hold(self, descriptor: int) -> None:
        self._descriptor = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(descriptor).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "removed just now")
        except BaseException:
            self.close()
            raise
        self._recordings.note_open(self)

    def _write_whole(self, data: bytes) -> None:
        """Write all lines, or leave the file unchanged."""
        assert self._descriptor is not None
        if self._has_rest:
            os.ftruncate(self._descriptor, self._size)
        self._has_rest = True
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            self._has_rest = False
            raise
        self._has_rest = False
        self._size += len(data)

    def _end_part(self) -> None:
        self.close()
        self._part += 1
        self._size = self._head_size = 0
        self._has_rest = self._is_left = False

    def close(self) -> None:
        """Close the file; later lines open it again."""
        descriptor, self._descriptor = self._descriptor, None
        self._recordings.open_files.pop(self, None)
        if descriptor is not None:
            try:
                os.close(descriptor)
            except OSError as error:  # network file systems report earlier writes here
                logger.error("%s may lack its last events: %s", self.name, words(error))


FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
NAME = re.compile(rf"\d{{8}}T\d{{6}}Z-.+{re.escape(SUFFIX)}(\.\d+)?")


def _chunks(entries: list[_RecordingEntry]) -> Iterator[list[_RecordingEntry]]:
    """Split lines into chunks that are written at once."""
    chunk: list[_RecordingEntry] = []
    size = 0
    for entry in entries:
        if chunk and size + len(entry.line) > WRITE_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += len(entry.line)
    if chunk:
        yield chunk


class _Room:
    """Keeps a directory of recordings below a size limit by removing the oldest ones."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._unseen: float = limit  # bytes written since the last check
        self._look_again = 0.0
        self._is_full = False

    def take(self, size: int) -> None:
        """Note that `size` bytes are about to be written.

        Raises:
            OSError: There is no room for them.
        """
        self._unseen += size
        is_due = self._is_full and time.monotonic() > self._look_again
        if is_due or (not self._is_full and self._unseen > LOOK_SHARE * self._limit):
            self._look(size)
        if self._is_full:
            raise OSError(errno.EDQUOT, f"sessions that still run fill {self._limit} bytes")

    def _look(self, wanted: int) -> None:
        found = sorted(self._files(), key=lambda file: file[0])
        total = wanted + sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= KEPT_SHARE * self._limit:
                break
            if _remove(path):
                total -= size
        self._unseen = 0
        self._is_full = total > KEPT_SHARE * self._limit
        self._look_again = time.monotonic() + LOOK_AGAIN_S

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        for path in self._directory.glob("*/*"):
            if NAME.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):  # removed by another server
                    status = path.lstat()
                    yield status.st_mtime, status.st_size, path


def _remove(path: Path) -> bool:
    """Remove a recording, unless a process still writes it; return whether it was removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


# ------------------------------------------------------------------ headers


def _file_name(text: str) -> str:
    """Return a text as part of a path: only letters, digits, `_`, `-` and inner dots."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".") or "_"


def schema_digest(spec: EnvironmentSpec) -> str | None:
    """Return a digest of the schemas of actions and observations; None without schemas."""
    try:
        schemas = [spec.action_schema(), TypeAdapter(spec.observation_cls).json_schema()]
    except PydanticUserError:
        return None
    return hashlib.sha256(msgspec.json.encode(schemas, order="sorted")).hexdigest()


def _importable(factory: Callable[[], Any]) -> str | None:
    if not isinstance(factory, type) or not issubclass(factory, Environment):
        return None
    is_reachable = factory.__module__ != "__main__" and "<locals>" not in factory.__qualname__
    return f"{factory.__module__}:{factory.__qualname__}" if is_reachable else None
