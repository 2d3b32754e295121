"""Times to the first step: cold containers, ours and the public package's, and a warm pool.

    python benchmarks/starts.py [--rounds 5] [--image IMAGE] [--write]

All containers run one image on one engine (`scripts/containers` makes the image, which serves
echo_env with this package). Measured are the public package's `LocalDockerProvider`, which calls
the program `docker`, and ours, each from the start call to the answer of the first step; a lease of
a warm `EnvPool` over the same containers; and processes instead of containers. Then 32 concurrent
starts of our containers, and sessions packed onto a pool. The engine is that of DOCKER_HOST;
without the variable, Podman's service is started for both packages. Progress goes to stderr, the
table to stdout, and with `--write` every round into `results/starts.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine
from benchmarks.peer import peer_python
from benchmarks.report import RESULTS

from echo_env import EchoAction, EchoEnv
from openenv import EnvPool
from openenv.providers import LocalDockerProvider, ProcessProvider

IMAGE = "localhost/openenv-test:latest"
AT_ONCE = 32
PACKED = 256

# The program for the public package's own interpreter; it prints the seconds of each start.
PEER = """
import json, sys, time
from openenv.core.containers.runtime.providers import LocalDockerProvider
from openenv.core import GenericEnvClient

took = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    client = GenericEnvClient.from_docker_image(sys.argv[1], provider=LocalDockerProvider())
    import asyncio
    async def play():
        env = await client if hasattr(client, "__await__") else client
        try:
            await env.reset()
            await env.step({"message": "hello"})
            took.append(time.perf_counter() - began)
        finally:
            await env.close()
    asyncio.run(play())
print(json.dumps(took))
"""


def play(env: EchoEnv) -> None:
    with env.sync() as client:
        client.reset()
        client.step(EchoAction(message="hello"))


def timed(work: Callable[[], Any], rounds: int, what: str) -> list[float]:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
        print(f"{what}: {took[-1] * 1000:,.1f} ms", file=sys.stderr)
    return took


def cold(provider: Any, image: str | None) -> Callable[[], None]:
    """Return a function that starts a server and takes the first step; `end_all` ends it later."""

    def start() -> None:
        server = provider.launch(image) if image else provider.launch()
        ended.append(server)
        server.wait_for_ready()
        with EchoEnv(base_url=server.url).sync() as env:
            env.reset()
            env.step(EchoAction(message="hello"))

    return start


ended: list[Any] = []


def end_all() -> None:
    while ended:
        ended.pop().stop()


def peer(image: str, rounds: int) -> list[float]:
    """Time the public package's starts; it finds its engine by the program `docker`."""
    if shutil.which("docker") is None:
        raise SystemExit("the public package needs the program docker: apt-get install docker.io")
    ran = subprocess.run(
        [str(peer_python()), "-c", PEER, image, str(rounds)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if ran.returncode:
        raise SystemExit(f"the public package failed: {ran.stderr[-2000:]}")
    took: list[float] = json.loads(ran.stdout.strip().splitlines()[-1])
    for one in took:
        print(f"public, cold container: {one * 1000:,.1f} ms", file=sys.stderr)
    return took


async def at_once(provider: LocalDockerProvider, image: str, count: int) -> float:
    began = time.perf_counter()
    servers = await asyncio.gather(*(provider.launch_async(image) for _ in range(count)))
    try:
        await asyncio.gather(*(server.wait_for_ready_async(120.0) for server in servers))
        return time.perf_counter() - began
    finally:
        await asyncio.gather(*(server.stop_async() for server in servers))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--image", default=IMAGE)
    parser.add_argument("--write", action="store_true", help="write every round as JSON")
    given = parser.parse_args()
    if "DOCKER_HOST" not in os.environ:
        from openenv.providers.engines import _podman, find_engine

        find_engine()
        os.environ["DOCKER_HOST"] = _podman.address()
    image, rounds = given.image, given.rounds
    times: dict[str, list[float]] = {}
    provider = LocalDockerProvider()
    times["public, cold container"] = peer(image, rounds)
    start = cold(provider, image)
    times["ours, cold container"] = timed(start, rounds, "ours, cold container")
    end_all()
    times["ours, cold process"] = timed(
        cold(ProcessProvider("echo_env"), None), rounds, "ours, cold process"
    )
    end_all()
    with EnvPool(provider, EchoEnv, image=image, min_servers=2, max_servers=2) as pool:
        times["ours, warm pool"] = timed(lambda: play(pool.lease()), 20 * rounds, "ours, warm pool")
    with EnvPool(provider, EchoEnv, image=image, min_servers=1, max_servers=4) as pool:
        began = time.perf_counter()
        envs = pool.lease_many(PACKED, progress=False)
        packed = time.perf_counter() - began
        for env in envs:
            env.close()
    together = asyncio.run(at_once(provider, image, AT_ONCE))
    provider.close()
    public = statistics.median(times["public, cold container"])
    print("| from the call to the first step | median | of the public package's |")
    print("| --- | ---: | ---: |")
    for what, took in times.items():
        median = statistics.median(took)
        print(f"| {what} | {median * 1000:,.1f} ms | 1/{public / median:,.1f} |")
    print(f"\n{AT_ONCE} containers at once: all answer after {together:.1f} s")
    print(f"{PACKED} sessions from a pool that has 1 of 4 containers: {packed:.1f} s")
    if given.write:
        content = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine.describe(),
            "seconds": times,
            "containers_at_once": {"count": AT_ONCE, "seconds": together},
            "packed": {"sessions": PACKED, "seconds": packed},
        }
        path = RESULTS / "starts.json"
        path.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
