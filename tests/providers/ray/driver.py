"""A trainer that launches servers, tells of them, and then waits until somebody kills it."""

from __future__ import annotations

import json
import sys
import threading
from typing import cast

from openenv.providers.ray import RayProvider, RayServer


def main(address: str) -> None:
    provider = RayProvider("echo_env", address=address, replicas=2)
    servers = [cast(RayServer, provider.launch()) for _ in range(2)]
    for server in servers:
        server.wait_for_ready()
    print(json.dumps([server.pid for server in servers]), flush=True)  # noqa: T201 - to the test
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
