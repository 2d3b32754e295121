"""A port of the loopback interface that leads to a server somewhere else."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from openenv._loops import new_event_loop
from openenv.errors import ProviderError

__all__ = ["Relay"]

CHUNK = 2**18


class Relay:
    """Passes connections on, both ways, until it is closed.

    Args:
        port: Where it listens, on 127.0.0.1.
        host: Where the server is.
        to: The server's port.

    Raises:
        ProviderError: The port is taken.
    """

    def __init__(self, port: int, host: str, to: int) -> None:
        self._target = (host, to)
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openenv-relay", daemon=True
        )
        self._thread.start()
        try:
            listening = asyncio.run_coroutine_threadsafe(self._listen(port), self._loop)
            self._server = listening.result()
        except OSError as error:
            self._end()
            raise ProviderError(f"cannot listen on 127.0.0.1 port {port}: {error}") from None

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._pass_on, "127.0.0.1", port, limit=CHUNK)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward_reader, onward_writer = await asyncio.open_connection(*self._target, limit=CHUNK)
        except OSError:
            writer.close()
            return
        try:
            there, back = _pump(reader, onward_writer), _pump(onward_reader, writer)
            await asyncio.gather(there, back)
        finally:
            onward_writer.close()
            writer.close()

    def close(self) -> None:
        """Stop listening, and cut what is connected. A second call does nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._server.close)
            self._end()

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, and its end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
