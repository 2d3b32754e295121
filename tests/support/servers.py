"""Real servers on free loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from websockets.exceptions import InvalidState

from openenv.server.run import bind
from openenv.server.websocket import SOCKET_EXTENSION


class NotAdopted:
    """Middleware that hides the socket, as any other web server would not offer it."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            scope.get("extensions", {}).pop(SOCKET_EXTENSION, None)
        await self.app(scope, receive, send)


class Server(uvicorn.Server):
    """Tells when it is up, and stops at once: uvicorn looks, and pauses, every 0.1 s."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.on_tick(0)
        self.up.set()
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            with contextlib.suppress(InvalidState):  # the client says goodbye just now
                connection.shutdown()
        deadline = self.loop.time() + 5
        while self.server_state.connections or self.server_state.tasks:
            assert self.loop.time() < deadline, "a connection or a request does not end"
            await asyncio.sleep(0.005)
        await self.lifespan.shutdown()

    def stop(self) -> None:
        """Stop, from any thread."""
        self.loop.call_soon_threadsafe(self.stopping.set)


@contextlib.contextmanager
def serving(app: Any, port: int = 0, host: str = "127.0.0.1", **options: Any) -> Iterator[str]:
    """Serve `app` from a thread of this process until the block ends.

    `options` are those of `uvicorn.Config`.
    """
    with bind(host, port) as bound:
        options = {"log_level": "warning", "ws_per_message_deflate": False, **options}
        config = uvicorn.Config(app, **options)
        server = Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        assert server.up.wait(10), "the server did not start"
        try:
            yield f"http://{host}:{bound.getsockname()[1]}"
        finally:
            server.stop()
            thread.join(15)
            assert not thread.is_alive(), "the server did not stop"
