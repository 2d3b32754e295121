"""Addresses of https that lead to ports of the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from support.certificates import certificates


class Doors:
    """Takes connections by TLS, and passes them on.

    Attributes:
        authority: The certificate (PEM) of the authority that has signed theirs.
        context: What they are made with.
    """

    def __init__(self, directory: Path, *names: str) -> None:
        made = certificates(directory, *(names or ("127.0.0.1", "localhost")))
        self.authority = made.authority
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(made.certificate, made.private_key)
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def to(self, port: int) -> int:
        """A port that leads to another one, which may not listen yet: then it hangs up."""
        opening = asyncio.run_coroutine_threadsafe(self._open(port), self._loop)
        return opening.result(10)

    async def _open(self, port: int) -> int:
        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)
            try:
                onward_reader, onward = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            self._writers.append(onward)
            await asyncio.gather(_pump(reader, onward), _pump(onward_reader, writer))

        server = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=self.context)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)


@contextlib.contextmanager
def doors(directory: Path, *names: str) -> Iterator[Doors]:
    with contextlib.closing(Doors(directory, *names)) as made:
        yield made


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()
