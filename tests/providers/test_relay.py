"""Relays to addresses and to pods. tests/providers/kubernetes asks a cluster of the latter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from openenv.errors import ProviderError
from openenv.providers._clusters import WebSocketAddress
from openenv.providers._relay import PROTOCOL, Relay, RelayThread, through, to_host, to_pod


async def shout(socket: Any) -> None:
    """Play an API server that leads to a pod, which answers in capitals until it is told to end."""
    for channel in (0, 1):
        await socket.send(bytes([channel]) + b"\x40\x1f")  # the port's number
    async for message in socket:
        if message[1:] == b"end":
            return
        await socket.send(b"\0" + message[1:].upper())


async def ignore(socket: Any) -> None:
    """Play an API server that answers nothing for a second, not even that the connection ends."""
    socket.transport.pause_reading()
    await asyncio.sleep(1)
    socket.transport.abort()


@pytest.fixture
def pod(request: pytest.FixtureRequest) -> Iterator[WebSocketAddress]:
    from websockets.asyncio.server import serve

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> Any:
        play = getattr(request, "param", shout)
        return await serve(play, "127.0.0.1", 0, subprotocols=[PROTOCOL])  # type: ignore[list-item]

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
    port = next(iter(server.sockets)).getsockname()[1]
    yield WebSocketAddress(f"ws://127.0.0.1:{port}/", {}, None, None, None)
    loop.call_soon_threadsafe(server.close)
    asyncio.run_coroutine_threadsafe(server.wait_closed(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def answer(relay: Relay, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", relay.port), 10) as client:
        client.sendall(data)
        return client.recv(100)


def test_relays_share_a_thread_and_end_apart(pod: WebSocketAddress) -> None:
    thread = RelayThread()
    one, other = (Relay(None, to_pod(lambda: pod), thread) for _ in range(2))
    assert (answer(one, b"a"), answer(other, b"b")) == (b"A", b"B")
    with socket.create_connection(("127.0.0.1", one.port), 10) as cut:
        cut.sendall(b"c")
        assert cut.recv(1) == b"C"
        one.close()
        with contextlib.suppress(ConnectionResetError):
            assert cut.recv(1) == b""
    one.close()
    with pytest.raises(ConnectionRefusedError):
        answer(one, b"d")
    assert answer(other, b"end") == b""
    with pytest.raises(ProviderError, match=f"port {other.port}"):
        Relay(other.port, to_pod(lambda: pod), thread)
    other.close()
    thread.close()
    thread.close()


def test_a_forked_child_closes_nothing(pod: WebSocketAddress) -> None:
    thread = RelayThread()
    relay = Relay(None, to_pod(lambda: pod), thread)
    child = os.fork()
    if child == 0:
        relay.close()
        thread.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert answer(relay, b"a") == b"A"
    relay.close()
    thread.close()


@pytest.mark.parametrize("pod", [ignore], indirect=True)
def test_a_connection_that_is_ending_ends_with_the_relay(pod: WebSocketAddress) -> None:
    thread = RelayThread()
    relay = Relay(None, to_pod(lambda: pod), thread)
    with socket.create_connection(("127.0.0.1", relay.port), 10) as client:
        client.sendall(b"a")
    time.sleep(0.2)
    relay.close()
    thread.close()


def test_the_end_of_one_direction_is_passed_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def turn_round() -> None:
            connection, _ = server.accept()
            with connection:
                data = b""
                while part := connection.recv(100):
                    data += part
                connection.sendall(data[::-1])

        threading.Thread(target=turn_round, daemon=True).start()
        relay = Relay(None, through(to_host(*server.getsockname())))
        with socket.create_connection(("127.0.0.1", relay.port), 10) as client:
            client.sendall(b"abc")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(10) == b"cba"
        relay.close()
