"""An environment that writes down every step it takes; served by either package.

`python ledger_app.py PORT_FILE` serves it on a free port of loopback until it is told to stop.
"""

import os
import sys
import threading
import time
import uuid
from pathlib import Path

import uvicorn

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

EXECUTED: dict[str, list[int]] = {}


class Entry(Action):
    number: int
    sleep_s: float = 0.0


class Page(Observation):
    instance: str = ""
    count: int = 0
    number: int = -1
    was_reset: bool = False


class LedgerEnvironment(Environment):
    """Counts its steps, and says in each observation which instance it is."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.instance = uuid.uuid4().hex
        self.count = 0
        self.was_reset = False
        EXECUTED[self.instance] = []

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.count, self.was_reset = 0, True
        EXECUTED[self.instance].clear()
        return self.page(-1)

    def step(self, action, timeout_s=None, **kwargs):
        if action.sleep_s:
            time.sleep(action.sleep_s)
        self.count += 1
        EXECUTED[self.instance].append(action.number)
        return self.page(action.number)

    def page(self, number):
        return Page(
            instance=self.instance, count=self.count, number=number, was_reset=self.was_reset
        )

    @property
    def state(self):
        return State(step_count=self.count)


def main(port_file):
    app = create_fastapi_app(LedgerEnvironment, Entry, Page, max_concurrent_envs=4096)

    @app.get("/executed/{instance}")
    def executed(instance: str):
        return list(EXECUTED[instance])

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)

    def report():
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        unfinished = Path(f"{port_file}.unfinished")
        unfinished.write_text(str(port))
        unfinished.replace(port_file)
        sys.stdin.read()  # whoever started this has ended, or closes it
        os._exit(0)

    threading.Thread(target=report, daemon=True).start()
    server.run()


if __name__ == "__main__":
    main(sys.argv[1])
