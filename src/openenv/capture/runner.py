"""A capture proxy on a thread of this process, for trainers that start agents themselves."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import uvicorn

from openenv.capture.server import create_app
from openenv.capture.sessions import SessionRegistry
from openenv.capture.upstream import InferenceClient
from openenv.server.run import bind

__all__ = ["CaptureServer", "serve_app"]

GRACE_S = 1


class CaptureServer:
    """A capture proxy that runs on a thread.

        with CaptureServer(llm_url="http://localhost:8000/v1", model="Qwen/Qwen3-8B") as server:
            session = server.registry.create()
            # an agent with OPENAI_BASE_URL={server.url}/v1, OPENAI_API_KEY={session.session_id}

    Args:
        llm_url: Base URL of the upstream's API.
        model: The model's name on the upstream.
        port: The port; 0 for a free port, which `url` contains after `start`.
        host: The address to listen on; agents must be able to reach it.
        options: Further options of `create_app`.

    Attributes:
        registry: The sessions.
        inference: The client of the upstream.

    Raises:
        ValueError: `llm_url` is not a URL, or an option is invalid.
    """

    def __init__(
        self,
        *,
        llm_url: str,
        model: str | None = None,
        port: int = 8100,
        host: str = "127.0.0.1",
        **options: Any,
    ) -> None:
        self.host = host
        self.port = port
        self.app = create_app(llm_url=llm_url, model=model, **options)
        self.registry: SessionRegistry = self.app.state.registry
        self.inference: InferenceClient = self.app.state.inference
        self._server: _CaptureUvicorn | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Return the proxy's address, without ``/v1``."""
        return f"http://{self.host}:{self.port}"

    def start(self, timeout_s: float = 30.0) -> None:
        """Start listening; do nothing if the server is already running.

        Raises:
            OSError: The port is taken.
            TimeoutError: The server did not start within `timeout_s` seconds.
        """
        if self._thread is not None:
            return
        bound = bind(self.host, self.port)
        self.port = bound.getsockname()[1]
        self._server = server = _CaptureUvicorn(_config(self.app))
        self._thread = threading.Thread(
            target=lambda: server.run([bound]), name="openenv-capture", daemon=True
        )
        self._thread.start()
        if not server.is_up.wait(timeout_s):
            self.stop()
            raise TimeoutError(f"the proxy did not come up in {timeout_s:g} s")

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the server and abandon running calls; wait up to `timeout_s` seconds. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None or self._server is None:
            return
        self._server.stop()
        thread.join(timeout_s)

    def __enter__(self) -> CaptureServer:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def serve_app(app: Any, bound: socket.socket) -> None:
    """Serve a proxy on this thread, on a listening socket, until SIGINT or SIGTERM."""
    uvicorn.Server(_config(app)).run(sockets=[bound])


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
    )


class _CaptureUvicorn(uvicorn.Server):
    """A uvicorn server that signals startup, and stops at once instead of polling every 0.1 s."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def main_loop(self) -> None:
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        self.is_up.set()
        await self._told.wait()

    def stop(self) -> None:
        """Stop the server, from any thread."""
        if self.is_up.is_set():
            self._loop.call_soon_threadsafe(self._told.set)
        self.should_exit = True
