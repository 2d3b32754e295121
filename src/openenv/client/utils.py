"""Small helpers around clients, for scripts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Awaitable
from typing import TypeVar

from openenv.client.background import running_loop
from openenv.client.transports.websocket import websocket_url

__all__ = ["convert_to_ws_url", "run_async_safely"]

T = TypeVar("T")


def run_async_safely(awaitable: Awaitable[T]) -> T:
    """Run `awaitable` to the end and return the result, from any thread.

    The coroutine runs on a new event loop. If a loop already runs on this thread, as in a notebook,
    the new loop runs on another thread, and this thread waits.
    """

    async def main() -> T:
        return await awaitable

    if running_loop() is None:
        return asyncio.run(main())
    context = contextvars.copy_context()
    with concurrent.futures.ThreadPoolExecutor(1, "openenv-run-async") as executor:
        return executor.submit(context.run, asyncio.run, main()).result()


def convert_to_ws_url(url: str) -> str:
    """Turn a server's URL (or ``host:port``) into a ``ws`` or ``wss`` URL."""
    return websocket_url(url).removesuffix("/ws")
