"""A worker process, which holds environments of a server.

The worker has a session for each session that the server assigned to it, with the same order of
calls and the same executors, so an environment can rely on the same guarantees as in the server's
process. Commands arrive as pickled frames (`openenv.execution.link`), encoded replies go back
unchanged, and the server enforces the deadlines (`HeldSession`). The process ends when the server
does: its end of the socket, initially standard input, then reads as closed, and a C timer ends it
even if an environment never releases the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import os
import pickle
import select
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from openenv._internal.children import calm_garbage_collector, keep_freed_memory
from openenv._internal.forkserver import read_exactly
from openenv._internal.logs import set_up_logs
from openenv._internal.shadowing import keep_libraries
from openenv._internal.timing import new_event_loop
from openenv.execution.commands import Encode
from openenv.execution.executors import Executors
from openenv.execution.link import HEAD, PICKLE_PROTOCOL, FrameKind, Link, dump_error
from openenv.execution.session import QueuedCall, Session
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.threads import contain

Source = Callable[[], EnvironmentSpec]


class HeldSession(Session):
    """A session whose deadlines another process enforces."""

    __slots__ = ()

    def _set_deadline(self, call: QueuedCall, timeout_s: Any) -> None:
        """Do nothing: the server cancels overdue calls."""


class ServerCall(QueuedCall, kw_only=True):
    """A call that the server has requested."""

    worker: Worker
    key: int
    numbered: int

    @property
    def number(self) -> int:
        return self.numbered

    def reply(self, result: Any, error: BaseException | None) -> None:
        self.worker.answer(self.key, result, error, self.seconds)


class Worker:
    """The sessions of a worker process.

    Args:
        grace_s: Seconds that the sessions have to close once the server is gone.
    """

    def __init__(self, spec: EnvironmentSpec, grace_s: float) -> None:
        self._spec = spec
        self._grace_s = grace_s
        self._executors = Executors(spec)
        self._sessions: dict[int, Session] = {}
        self._encodes: dict[int, Encode | None] = {}
        self._over = asyncio.Event()
        self.link = Link(self._received, self._over.set)

    async def work(self, end: socket.socket) -> None:
        """Serve until the server is gone, then close the open sessions."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self.link, sock=end)
        self.link.send(FrameKind.READY, 0)
        await self._over.wait()
        closing = [session.stop() for session in self._sessions.values()]
        if closing:
            await asyncio.wait(closing, timeout=self._grace_s)
        self._executors.stop()

    def _received(self, kind: int, key: int, data: bytes, _: float) -> None:
        if kind == FrameKind.SERVE:
            self._serve(key, data)
        elif kind == FrameKind.ENCODE:
            self._encodes[key] = _encode_of(data)
        elif kind == FrameKind.OPEN:
            self._open(key, data.decode())
        elif kind == FrameKind.CANCEL and key in self._sessions:
            self._sessions[key].abort()
        elif kind == FrameKind.READY:  # the server checks that the worker responds
            self.link.send(FrameKind.READY, 0)
        elif kind == FrameKind.CLOSE and key in self._sessions:
            session = self._sessions[key]
            session.stop().add_done_callback(lambda _: self._closed(key, session))

    def _open(self, key: int, session_id: str) -> None:
        session = self._sessions[key] = HeldSession(self._spec, executors=self._executors)
        session.id = session_id
        try:
            session.start().add_done_callback(functools.partial(self._opened, key))
        except Exception as error:  # the system allows no more threads
            self.answer(key, None, error)

    def _opened(self, key: int, opening: asyncio.Future[None]) -> None:
        error = opening.exception()
        if error is not None:
            del self._sessions[key]
        spec, cls = self._spec, self._spec.environment_class
        facts = None
        if cls is not None:
            facts = cls.__name__, spec.supports_concurrency, spec.has_tools
        self.answer(key, facts, error)

    def _serve(self, key: int, data: bytes) -> None:
        try:
            command, strict, number, trace = pickle.loads(data)  # nosec B301  # of the server
        except Exception as error:
            self.answer(key, None, error)
            return
        call = ServerCall(
            self._sessions[key],
            command,
            self._encodes.get(key),
            strict,
            trace=trace,
            worker=self,
            key=key,
            numbered=number,
        )
        call.owner.serve(call)

    def _closed(self, key: int, session: Session) -> None:
        self._sessions.pop(key, None)  # already removed if no environment could be made
        self._encodes.pop(key, None)
        self.answer(key, None, session.close_error)

    def answer(
        self, key: int, result: Any, error: BaseException | None, seconds: float = 0.0
    ) -> None:
        """Send the answer to a request of the server for a session."""
        if error is not None:
            self.link.send(FrameKind.ERROR, key, dump_error(error), seconds)
        elif type(result) is bytes:
            self.link.send(FrameKind.BYTES, key, result, seconds)
        else:
            try:
                self.link.send(FrameKind.VALUE, key, pickle.dumps(result, PICKLE_PROTOCOL), seconds)
            except Exception as unfit:
                why = f"a {type(result).__name__} cannot leave the environment's process: {unfit}"
                self.link.send(FrameKind.ERROR, key, dump_error(TypeError(why)))


def _encode_of(data: bytes) -> Encode | None:
    try:
        return pickle.loads(data)  # type: ignore[no-any-return]  # nosec B301  # of the server
    except Exception as error:
        why = f"replies cannot be encoded in the environment's process: {error}"

    def refuse(_: Any) -> Any:
        raise TypeError(why)

    return refuse


def main() -> None:
    """Run as a worker process of the server at the other end of standard input."""
    end = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        length, *_ = HEAD.unpack(read_exactly(end, HEAD.size))
        setup = read_exactly(end, length)
    except EOFError:
        return
    path, grace_s, source = pickle.loads(setup)  # nosec B301  # of the server
    set_up_logs()
    threading.Thread(target=_end_with, args=[end.fileno(), grace_s], daemon=True).start()
    keep_libraries()
    sys.path[:] = path
    try:
        find: Source = pickle.loads(source)  # nosec B301  # of the server
        spec = find()
    except BaseException as error:
        with contextlib.suppress(OSError):
            data = dump_error(contain(error))
            end.sendall(HEAD.pack(len(data), 0, FrameKind.UNFIT, 0.0) + data)
        raise
    calm_garbage_collector()
    keep_freed_memory()
    _run(spec, grace_s, end)


STDERR = 2


def _end_with(server: int, grace_s: float) -> None:
    """End the process soon after the server ends, whatever still runs in it.

    A C timer ends the process, since an environment may never release the interpreter.
    """
    gone = select.poll()
    gone.register(server, 0)
    while not gone.poll():
        pass
    faulthandler.dump_traceback_later(1.5 * grace_s, exit=True, file=STDERR)


def _run(spec: EnvironmentSpec, grace_s: float, end: socket.socket) -> None:
    end.setblocking(False)
    work = _work(spec, grace_s, end)
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(work)
    else:
        asyncio.run(work)


async def _work(spec: EnvironmentSpec, grace_s: float, end: socket.socket) -> None:
    await Worker(spec, grace_s).work(end)


if __name__ == "__main__":  # without a fork server
    main()
