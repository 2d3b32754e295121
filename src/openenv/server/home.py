"""The event loop that an application's sessions live on.

Sessions, their queues and their timers belong to one event loop. Usually that is the loop on which
the web server runs the application's lifespan. Test clients differ: Starlette's
``TestClient(app)`` without ``with`` starts a loop for each request and never runs the lifespan, and
``httpx.ASGITransport`` runs on the caller's current loop. A session that was opened on a loop that
has ended would wait forever.

So each application has a `HomeLoop`, the first of these that exists:

1. the loop on which its lifespan runs;
2. the loop of a web server that is known to keep its loop (`SERVERS`): an application that is
   mounted in another one has no lifespan of its own;
3. a loop on a separate thread, until the application is garbage collected or the program ends.

A request that arrives on another loop is answered on the home loop, and its `receive` and `send`
are called on the loop it arrived on. That costs two thread switches for each message. Only the
routes of this package move: routes that users add to the application run where they are called.

The in-process transport of our own clients stays on its loop while there is no home loop: its
sessions end with its connections.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import logging
import threading
import weakref
from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openenv._internal.timing import close_loop, new_event_loop
from openenv.execution.manager import SessionManager
from openenv.protocol.http import IN_PROCESS_EXTENSION
from openenv.server.mcp.endpoint import MCPEndpoint
from openenv.server.websocket import SOCKET_EXTENSION, owners_of

logger = logging.getLogger(__name__)

# Packages whose servers keep one event loop for as long as they serve an application.
SERVERS = ("uvicorn", "hypercorn", "granian", "daphne", "openenv.server")
EXIT_GRACE_S = 2.0

_on_threads: weakref.WeakSet[HomeLoop] = weakref.WeakSet()


class HomeLoop:
    """Finds, and if necessary runs, the event loop of an application's sessions."""

    def __init__(self, manager: SessionManager, endpoint: MCPEndpoint) -> None:
        self.manager = manager
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop if it exists and runs; otherwise None."""
        loop, thread = self.manager.home_loop, self._thread
        is_alive = loop is not None and (thread.is_alive() if thread else loop.is_running())
        return loop if is_alive else None

    def keep(self, routes: Iterable[BaseRoute]) -> None:
        """Make routes answer on the home loop."""
        for route in routes:
            if isinstance(route, Route | WebSocketRoute):
                route.app = _AtHome(route.app, self)

    # ------------------------------------------------------------------ the lifespan

    def enter(self) -> None:
        """Begin the lifespan: the running loop becomes the home loop if there is none yet."""
        with self._lock:
            if self.loop is None:
                self._move_to(asyncio.get_running_loop())
        if self.manager.home_loop is asyncio.get_running_loop():
            self.manager.start()

    async def leave(self) -> None:
        """End the lifespan and close every session, unless another server's loop is the home."""
        loop = self.loop
        if loop is asyncio.get_running_loop():
            await self._close()
            self.manager.home_loop = None
        elif loop is not None and self._thread is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), loop))
            self.end()

    async def _close(self, **options: Any) -> None:
        await self._endpoint.aclose()
        await self.manager.aclose(**options)

    # ------------------------------------------------------------------ requests

    def of(self, scope: Scope, receive: Receive) -> asyncio.AbstractEventLoop | None:
        """Return the loop that must answer a request; None for the running loop.

        Args:
            scope: The request's ASGI scope.
            receive: The server's `receive`, which reveals the server.
        """
        with self._lock:
            loop = self.loop
            if loop is None:
                loop = self._chosen(scope, receive)
        return loop

    def _chosen(self, scope: Scope, receive: Receive) -> asyncio.AbstractEventLoop | None:
        extensions = scope.get("extensions") or {}
        if IN_PROCESS_EXTENSION in extensions:
            return None
        is_server = any(type(one).__module__.startswith(SERVERS) for one in owners_of(receive))
        if SOCKET_EXTENSION in extensions or is_server:
            self._move_to(asyncio.get_running_loop())
            return None
        loop = new_event_loop()
        thread = threading.Thread(target=_run, args=[loop], name="openenv-home", daemon=True)
        thread.start()
        self._move_to(loop, thread)
        loop.call_soon_threadsafe(self.manager.start)
        _on_threads.add(self)
        return loop

    def _move_to(
        self, loop: asyncio.AbstractEventLoop, thread: threading.Thread | None = None
    ) -> None:
        if self.manager.home_loop is not None:  # it has ended without notice
            self.manager.abandon()
        self._thread, self.manager.home_loop = thread, loop

    # ------------------------------------------------------------------ the separate thread

    def end(self) -> threading.Thread | None:
        """Close every session and end the thread without waiting; return the thread, if any."""
        loop, thread = self.loop, self._thread
        if loop is None or thread is None:
            return None
        self._thread = self.manager.home_loop = None
        _on_threads.discard(self)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._end_here, loop)
        return thread

    def _end_here(self, loop: asyncio.AbstractEventLoop) -> None:
        closing = loop.create_task(self._close(grace_s=EXIT_GRACE_S))
        closing.add_done_callback(lambda _: loop.stop())


@atexit.register
def _end_all() -> None:
    """Close the environments of applications without a shutdown; called at exit."""
    threads = [home.end() for home in list(_on_threads)]
    for thread in threads:
        if thread is not None:
            thread.join(EXIT_GRACE_S + 1.0)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, and end the tasks that libraries have left."""
    loop.run_forever()
    close_loop(loop, waits_for_threads=False)


class _AtHome:
    """An ASGI application that is called on the home loop."""

    __slots__ = ("_home", "app")

    def __init__(self, app: ASGIApp, home: HomeLoop) -> None:
        self.app = app
        self._home = home

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        here = _running_loop()
        if self._home.manager.home_loop is here and here is not None:
            await self.app(scope, receive, send)
            return
        home = self._home.of(scope, receive)
        if home is None or home is here:
            await self.app(scope, receive, send)
        else:
            await _call_on(home, self.app, scope, receive, send)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # another library's loop, such as trio's
        return None


async def _call_on(
    home: asyncio.AbstractEventLoop, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> None:
    """Call an application on another loop, and carry its messages to and from the running loop.

    Raises:
        Exception: An error that the application raised.
    """
    import anyio
    from anyio.from_thread import BlockingPortal

    if extensions := scope.get("extensions"):  # a socket cannot be moved to another loop
        kept = {name: value for name, value in extensions.items() if name != SOCKET_EXTENSION}
        scope = {**scope, "extensions": kept}
    ended, tasks = anyio.Event(), []
    async with BlockingPortal() as portal:

        async def receive_here() -> Message:
            message: Message = await asyncio.wrap_future(portal.start_task_soon(receive))
            return message

        async def send_here(message: Message) -> None:
            await asyncio.wrap_future(portal.start_task_soon(send, message))

        def begin() -> None:
            task = home.create_task(_called(app, scope, receive_here, send_here))
            tasks.append(task)
            task.add_done_callback(lambda _: portal.start_task_soon(ended.set))

        # Context variables are copied, except from loops of other libraries: theirs hold which
        # library runs.
        is_like = _running_loop() is not None
        context = contextvars.copy_context() if is_like else contextvars.Context()
        home.call_soon_threadsafe(begin, context=context)
        try:
            await ended.wait()
        except BaseException:
            home.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            with anyio.CancelScope(shield=True):
                await ended.wait()
            raise
        finally:
            await portal.stop(cancel_remaining=True)
    (task,) = tasks
    if task.cancelled():
        raise RuntimeError("the application was shut down during the request")
    task.result()


async def _called(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)
