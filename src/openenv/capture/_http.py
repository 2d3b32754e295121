"""Requests by HTTP/1.1 on asyncio, whose answers are read as they come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import h11

from openenv._internal.net.proxies import connect_through, proxy_for
from openenv._internal.net.tls import client_context

__all__ = ["Answer", "Connections", "NoAnswer"]

READ_BYTES = 2**16
CONNECT_TIMEOUT_S = 10.0
IDLE_CONNECTIONS = 64


class NoAnswer(ConnectionError):
    """The server could not be reached, or its connection broke."""


@dataclass
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    is_used: bool = False

    def close(self) -> None:
        self.writer.close()


@dataclass
class Answer:
    """What a server answers: status and headers, and a body that comes in parts.

    Each part has to come within the time that the request was given.
    """

    status: int
    headers: dict[str, str]
    _connection: _Connection
    _timeout_s: float
    is_read: bool = False

    async def parts(self) -> AsyncIterator[bytes]:
        """The body.

        Raises:
            NoAnswer: The connection broke before its end.
            TimeoutError: The next part did not come in time.
        """
        while not self.is_read:
            event = await _event(self._connection, self._timeout_s)
            data = []
            while isinstance(event, h11.Data):  # all that has come until now is one part
                data.append(event.data)
                event = _next_event(self._connection)
            self.is_read = isinstance(event, h11.EndOfMessage)
            if data:
                yield b"".join(data)

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.parts()])


class Connections:
    """Connections to one server, used again and again.

    Args:
        url: Its address; a path in it stands before the path of each request, except for its last
            part where that begins with ``/../``.
        timeout_s: Seconds that a server may be silent in an answer.

    Raises:
        ValueError: The address is none of HTTP.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of HTTP, such as http://localhost:8000/v1")
        self._timeout_s = timeout_s
        self._url = url
        self._host, self._tls = parts.hostname, parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._authority = parts.netloc.rpartition("@")[2]
        self._idle: list[_Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Answer]:
        """Ask, and read the answer in the block.

        Raises:
            NoAnswer: No server answers there, or the connection broke.
            TimeoutError: It was silent for too long.
        """
        head = {"host": self._authority, "accept-encoding": "identity", **headers}
        if body:
            head["content-length"] = str(len(body))
        asked = h11.Request(method=method, target=self._target(path), headers=list(head.items()))
        connection, answer = await self._asked(asked, body)
        try:
            yield answer
        finally:
            self._give_back(connection, answer)

    async def aclose(self) -> None:
        """Close those that are idle."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()

    async def _asked(self, asked: h11.Request, body: bytes) -> tuple[_Connection, Answer]:
        while True:
            connection = self._idle_one() or await self._connect()
            was_used, connection.is_used = connection.is_used, True
            try:
                return connection, await self._sent(connection, asked, body)
            except NoAnswer:
                connection.close()
                if not was_used:
                    raise  # else the server has closed it while it was idle: ask by another
            except BaseException:
                connection.close()
                raise

    async def _sent(self, connection: _Connection, asked: h11.Request, body: bytes) -> Answer:
        http, writer = connection.http, connection.writer
        try:
            writer.write((http.send(asked) or b"") + (http.send(h11.Data(data=body)) or b""))
            writer.write(http.send(h11.EndOfMessage()) or b"")
            await writer.drain()
        except OSError as error:
            raise NoAnswer(f"{self._where} closed the connection: {error}") from error
        event = await _event(connection, self._timeout_s)
        while isinstance(event, h11.InformationalResponse):
            event = await _event(connection, self._timeout_s)
        if not isinstance(event, h11.Response):
            raise NoAnswer(f"{self._where} does not speak HTTP")
        headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        return Answer(event.status_code, headers, connection, self._timeout_s)

    def _idle_one(self) -> _Connection | None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # those of a loop that is over are dead
            self._idle, self._loop = [], loop
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        tls: ssl.SSLContext | None = client_context() if self._tls else None
        try:
            opening = self._open(tls)
            reader, writer = await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
        except asyncio.TimeoutError as error:
            why = f"{self._where} took no connection in {CONNECT_TIMEOUT_S:g} s"
            proxy = proxy_for(self._url)
            raise NoAnswer(why if proxy is None else proxy.describe(why)) from error
        except (OSError, ValueError) as error:  # an ssl.SSLError is one
            raise NoAnswer(f"{self._where} cannot be reached: {error}") from error
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Connection(reader, writer)

    async def _open(
        self, tls: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        proxy = proxy_for(self._url)
        if proxy is None:
            return await asyncio.open_connection(self._host, self._port, ssl=tls, limit=2**20)
        through = await connect_through(proxy, self._host, self._port, CONNECT_TIMEOUT_S)
        try:
            return await asyncio.open_connection(
                sock=through,
                ssl=tls,
                server_hostname=self._host if tls is not None else None,
                limit=2**20,
            )
        except BaseException:
            through.close()
            raise

    def _give_back(self, connection: _Connection, answer: Answer) -> None:
        http = connection.http
        ended = answer.is_read and http.our_state is h11.DONE and http.their_state is h11.DONE
        if ended and len(self._idle) < IDLE_CONNECTIONS:
            http.start_next_cycle()
            self._idle.append(connection)
        else:
            connection.close()

    def _target(self, path: str) -> str:
        if path.startswith("/../"):
            return self._prefix.rpartition("/")[0] + path[3:]
        return self._prefix + path

    @property
    def _where(self) -> str:
        return f"{self._host}:{self._port}"


async def _event(connection: _Connection, timeout_s: float) -> object:
    """The next event of h11."""
    while (event := _next_event(connection)) is h11.NEED_DATA:
        try:
            data = await asyncio.wait_for(connection.reader.read(READ_BYTES), timeout_s)
        except asyncio.TimeoutError as error:
            raise TimeoutError(f"the server was silent for {timeout_s:g} s") from error
        except OSError as error:
            raise NoAnswer(f"the connection broke: {error}") from error
        connection.http.receive_data(data)
    return event


def _next_event(connection: _Connection) -> object:
    """The next event of h11, or NEED_DATA."""
    try:
        event = connection.http.next_event()
    except h11.RemoteProtocolError as error:
        raise NoAnswer(f"the connection broke: {error}") from error
    if isinstance(event, h11.ConnectionClosed):
        raise NoAnswer("the server closed the connection")
    return event
