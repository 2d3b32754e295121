"""The cost of resets of the coding environment: batches of episodes in kept sessions.

    python benchmarks/coding_resets.py [--episodes 512] [--sessions 64] [--turns 3]
        [--thinks 0] [--kind bubblewrap] [--write]

A batch resets every session and then takes `--turns` steps in each, as a trainer does. `--thinks`
is the time in seconds of a model for the replies of a turn. The model computes elsewhere, so the
environment's processor is free meanwhile. The figures are wall-clock seconds in resets and in
steps, of all batches, and of all but the first, which finds no ready sandboxes.

The program measures the package that `python` imports; `BENCH_SOURCE` names another checkout of
ours (its `src` and `envs`) to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_server
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "coding_resets.json"
STARTS_WITHIN_S = 60.0

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def served(kind: str, sessions: int) -> Iterator[str]:
    """Serve the coding environment from another process; yield the address."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    source = Path(os.environ.get("BENCH_SOURCE") or ROOT)
    environment = {
        **os.environ,
        "CODING_SANDBOX": kind,
        "MAX_CONCURRENT_ENVS": str(sessions),
        "PYTHONPATH": f"{source / 'src'}:{source / 'envs'}",
    }
    command = [sys.executable, "-m", "uvicorn", "coding_env.server.app:app", "--port", str(port)]
    command += ["--log-level", "warning"]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, env=environment, cwd="/") as server:
        try:
            _await(url, server)
            yield url
        finally:
            server.terminate()


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return
        time.sleep(0.05)
    raise SystemExit(f"the server did not start within {STARTS_WITHIN_S} s")


def measure(url: str, episodes: int, sessions: int, turns: int, thinks_s: float) -> dict[str, Any]:
    """Play the batches, and return the seconds of resets and steps."""
    from openenv import VectorEnv

    resets: list[float] = []
    steps: list[float] = []
    actions = [{"code": f"x = {number}\nprint(x * 2)"} for number in range(sessions)]
    with VectorEnv(
        url, sessions, stack=False, autoreset_mode="Disabled", message_timeout_s=600
    ) as envs:
        for batch in range(episodes // sessions):
            began = time.perf_counter()
            envs.reset(seed=batch)
            resets.append(time.perf_counter() - began)
            spent = 0.0
            for _ in range(turns):
                time.sleep(thinks_s)
                began = time.perf_counter()
                seen = envs.step(actions)[0]
                spent += time.perf_counter() - began
                assert [one["stdout"] for one in map(_fields, seen)] == [
                    f"{number * 2}\n" for number in range(sessions)
                ]
            steps.append(spent)
    return {
        "resets_s": round(sum(resets), 2),
        "steps_s": round(sum(steps), 2),
        "warm_resets_s": round(sum(resets[1:]), 2),
        "warm_steps_s": round(sum(steps[1:]), 2),
        "resets_of_batches_s": [round(one, 2) for one in resets],
    }


def _fields(observation: Any) -> dict[str, Any]:
    fields: dict[str, Any] = (
        observation if isinstance(observation, dict) else observation.model_dump()
    )
    return fields


def main() -> None:
    """Measure once, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--thinks", type=float, default=0.0, help="Seconds a turn.")
    parser.add_argument("--kind", default="bubblewrap", help="The kind of sandbox.")
    parser.add_argument("--write", action="store_true", help=f"Write into {RESULTS.name}.")
    asked = parser.parse_args()
    with served(asked.kind, asked.sessions) as url:
        row = measure(url, asked.episodes, asked.sessions, asked.turns, asked.thinks)
    found = {**vars(asked), **row}
    del found["write"]
    print(json.dumps(found))
    if asked.write:
        RESULTS.parent.mkdir(exist_ok=True)
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        RESULTS.write_text(json.dumps([*before, found], indent=1) + "\n")


if __name__ == "__main__":
    main()
