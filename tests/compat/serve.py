"""Serve applications of this folder, each on a free port; run by the peer's Python and by ours.

`python serve.py peer_environment:toy ...` prints one JSON line of ports, and serves until its
standard input ends.
"""

import asyncio
import importlib
import json
import os
import socket
import sys
import threading

import uvicorn


def load(target):
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def listen():
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()  # a client that is early waits
    return bound


def end_with_parent():
    sys.stdin.read()
    os._exit(0)


async def main(targets):
    sockets = [listen() for _ in targets]
    servers = [uvicorn.Server(uvicorn.Config(load(t), log_level="warning")) for t in targets]
    threading.Thread(target=end_with_parent, daemon=True).start()
    print(json.dumps([bound.getsockname()[1] for bound in sockets]), flush=True)  # noqa: T201
    await asyncio.gather(
        *(server.serve(sockets=[bound]) for server, bound in zip(servers, sockets, strict=True))
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
