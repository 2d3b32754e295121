"""The environment server of verifiers in the league.

    python verifiers_server.py PORT

It serves the taskset of `verifiers_echo.py` with verifiers' own `serve_env`, in one process. The
agent plays in the `null` harness: a chat program, in a process for each rollout.
"""

from __future__ import annotations

import logging
import sys

from verifiers.v1.serve import serve_env
from verifiers.v1.utils.loaders import resolve_env_config


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    config = resolve_env_config({"taskset": {"id": "verifiers_echo"}, "agent": agent})
    serve_env(max_workers=1, address=f"tcp://127.0.0.1:{sys.argv[1]}", config=config)


if __name__ == "__main__":
    main()
