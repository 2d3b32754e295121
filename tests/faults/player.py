"""A client that plays on another host, and says what it sees.

python player.py URL STEPS PAUSE_S
"""

from __future__ import annotations

import sys
import time

from openenv import GenericEnvClient, OpenEnvError

url, steps, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


with GenericEnvClient(base_url=url, message_timeout_s=60) as env:
    env.reset()
    say("ready")
    for _ in range(steps):
        try:
            say(env.step({"what": "count"}).observation["text"])
        except OpenEnvError as error:
            say(type(error).__name__)
            break
        time.sleep(pause_s)
