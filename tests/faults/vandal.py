"""A client that opens sessions and leaves them in an ugly way: a process to be killed.

python vandal.py URL WAY COUNT SEED
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import struct
import sys
from typing import Any
from urllib.parse import urlsplit

from support.ws import TEXT, frame, raw

from openenv import GenericEnvClient, OpenEnvError, VectorEnv

HANDFUL = 50
PATIENCE: Any = {"queue_timeout_s": 30, "message_timeout_s": 20}  # some answers never come


def killed_at_work(url: str, count: int, chance: random.Random) -> None:
    """Its process is killed, with sessions that share a connection, and steps under way."""
    envs = VectorEnv(url, count, **PATIENCE)
    with contextlib.suppress(OpenEnvError):
        envs.reset()
    with contextlib.suppress(OpenEnvError):
        envs.step([{"what": "count"}] * count)
    with contextlib.suppress(OpenEnvError):
        envs.send([{"what": "sleep", "value": 0.01}] * count)
    os.kill(os.getpid(), signal.SIGKILL)


def reset_in_mid_air(url: str, count: int, chance: random.Random) -> None:
    """Connections of version 0 are reset, in whatever they were doing."""
    for _ in range(count // HANDFUL):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(raw(url)) for _ in range(HANDFUL)]
            for client in clients:
                requests = chance.sample(REQUESTS, chance.randrange(len(REQUESTS) + 1))
                with contextlib.suppress(OSError):  # after a "close" the server may be quicker
                    for request in requests:
                        client.send(frame(TEXT, json.dumps(request).encode()))
                if requests and chance.random() < 0.5:
                    with contextlib.suppress(OSError):
                        client.read()
            for client in clients:
                linger = struct.pack("ii", 1, 0)
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


REQUESTS = [
    {"type": "reset", "data": {}},
    {"type": "step", "data": {"what": "count"}},
    {"type": "step", "data": {"what": "sleep", "value": 0.02}},
    {"type": "state"},
    {"type": "close"},
]


def cancelled(url: str, count: int, chance: random.Random) -> None:
    """Calls are cancelled, and clients closed, while something is under way."""

    async def one() -> None:
        client = GenericEnvClient(base_url=url, **PATIENCE)
        with contextlib.suppress(OpenEnvError, asyncio.TimeoutError, ConnectionError):
            async with client:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(call(client), chance.random() * 0.05)

    async def call(client: GenericEnvClient) -> None:
        await client.reset()
        await client.step({"what": "sleep", "value": 0.05})

    async def all_of_them() -> None:
        for _ in range(count // HANDFUL):
            await asyncio.gather(*(one() for _ in range(HANDFUL)))

    asyncio.run(all_of_them())


def left_open(url: str, count: int, chance: random.Random) -> None:
    """The process ends, by itself, with sessions that nobody has closed."""
    clients = [GenericEnvClient(base_url=url, **PATIENCE) for _ in range(count)]
    for client in clients:
        with contextlib.suppress(OpenEnvError):
            client.reset()
    os._exit(0)


WAYS = {way.__name__: way for way in (killed_at_work, reset_in_mid_air, cancelled, left_open)}

if __name__ == "__main__":
    url, way, count, seed = sys.argv[1:]
    assert urlsplit(url).hostname == "127.0.0.1"
    WAYS[way](url, int(count), random.Random(int(seed)))
