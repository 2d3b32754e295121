"""The time that environments add to a training step with many rollouts and a policy of 50 ms.

    python benchmarks/trainers.py [--rollouts 256] [--turns 20] [--policy 0.05] [--rounds 3]

One process has all rollouts in flight, as a trainer does; the server runs in another process, on
the other core. Figures are compared within a round: with the policy alone, which is the lower
limit, and with the public package. Progress goes to stderr, the table to stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contenders import ECHOES, OURS, PUBLIC, Client, clean_environment
from benchmarks.serving import serving

CONTENDERS = (
    Client("policy alone", OURS, "policy_rollouts.py", "policy"),
    Client("public clients", PUBLIC, "policy_rollouts.py", "clients"),
    Client("ours, clients", OURS, "policy_rollouts.py", "clients"),
    Client("ours, sessions", OURS, "policy_rollouts.py", "sessions"),
)
SERVERS = {OURS: "ours sync", PUBLIC: "public sync"}


def played(client: Client, core: int, *options: object) -> dict[str, Any]:
    """Run a client program on its own core, against a fresh server on the other."""
    contender = next(one for one in ECHOES if one.name == SERVERS[client.whose])
    cores = os.sched_getaffinity(0)
    with serving(contender, cores - {core} or cores) as server:
        healthy(server.url)
        done = subprocess.run(
            ["taskset", "-c", str(core), *client.command(server.url, *map(str, options))],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(client.whose),
        )
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def healthy(url: str, within_s: float = 60) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
            return
        time.sleep(0.02)
    raise TimeoutError(url)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=256)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--policy", type=float, default=0.05, help="seconds that a reply takes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    rounds: list[dict[str, dict[str, Any]]] = []
    for number in range(given.rounds):
        rounds.append(
            {
                one.name: played(one, core, given.rollouts, given.turns, given.policy)
                for one in CONTENDERS
            }
        )
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
    rows = [summed(one.name, rounds) for one in CONTENDERS]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{given.rollouts} rollouts in flight, {given.turns} turns, policy {given.policy} s\n")
    print("| | seconds | more than the policy alone | ms a step | µs CPU a step |")
    print("| --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {row['name']} | {row['wall_s']:.2f} | {row['overhead']:+.1%} "
            f"| {row['step_ms']:.2f} | {row['cpu_us']:.0f} |"
        )


def summed(name: str, rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the medians of a contender, compared within each round."""
    mine = [one[name] for one in rounds]
    alone = [one["policy alone"] for one in rounds]
    row = {key: statistics.median(one[key] for one in mine) for key in mine[0]}
    more = [a["wall_s"] / b["wall_s"] - 1 for a, b in zip(mine, alone, strict=True)]
    return {"name": name, **row, "overhead": statistics.median(more)}


if __name__ == "__main__":
    main()
