"""Real servers on free loopback ports."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve `app` from a thread of this process until the block ends."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=5, ws_per_message_deflate=False
        )
        server = uvicorn.Server(config)
        started = threading.Event()
        startup = server.startup

        async def signalling(sockets: Any = None) -> None:
            await startup(sockets=sockets)
            started.set()

        server.startup = signalling  # type: ignore[method-assign]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        assert started.wait(10), "the server did not start"
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(15)
            assert not thread.is_alive(), "the server did not stop"
