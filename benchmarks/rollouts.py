"""The cost of a rollout beside its episode: `rollout`, and a bare loop over the same client.

    python benchmarks/rollouts.py [--sessions 1 16 256] [--steps 1 10] [--episodes 2000]

The server runs in a process of its own. The bare loop resets and steps, in the same number of
tasks, and keeps nothing; `rollout` writes a file of JSON lines, or keeps the records in memory.
Figures are compared within a round. CPU time is that of this process alone, so other load on the
machine changes little. Progress goes to stderr, the table to stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

from openenv import GenericEnvClient  # noqa: E402
from openenv.client import background  # noqa: E402
from openenv.rollouts import RolloutLimits, rollout  # noqa: E402

SERVER = """
from openenv import Action, Environment, Observation, State, create_app


class Say(Action):
    word: str


class Heard(Observation):
    word: str = ""


class Talk(Environment[Say, Heard, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    NEVER_BLOCKS = True

    def reset(self, seed: int | None = None) -> Heard:
        return Heard()

    def step(self, action: Say) -> Heard:
        return Heard(word=action.word, reward=1.0)

    @property
    def state(self) -> State:
        return State()


app = create_app(Talk, max_concurrent_envs=1000)
"""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the environment from a process of its own."""
    (folder / "talk.py").write_text(SERVER)
    told = folder / "port"
    command = [sys.executable, "-m", "openenv.server.run", "talk:app", "--app-dir", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [*command, "--port", "0", "--port-file", str(told)],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while not told.exists():
                time.sleep(0.05)
            url = f"http://127.0.0.1:{told.read_text().strip()}"
            wait_for(url)
            yield url
        finally:
            process.kill()


def wait_for(url: str) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(ConnectionError), GenericEnvClient(base_url=url) as env:
            env.reset()
            return
        time.sleep(0.05)
    raise TimeoutError(url)


def say(observation: dict[str, Any]) -> dict[str, str]:
    return {"word": "hello"}


async def bare(url: str, sessions: int, episodes: int, steps: int) -> None:
    left = iter(range(episodes))

    async def play() -> None:
        client = GenericEnvClient(base_url=url)
        await client.connect()
        for seed in left:
            result = await client.reset(seed=seed)
            for _ in range(steps):
                result = await client.step(say(result.observation))
        await client.close()

    await asyncio.gather(*(play() for _ in range(sessions)))


def ways(url: str, folder: Path) -> dict[str, Callable[[int, int, int], Any]]:
    def kept(sessions: int, episodes: int, steps: int, output: Path | None = None) -> Any:
        limits = RolloutLimits(steps=steps)
        return rollout(
            url, say, n=episodes, concurrency=sessions, limits=limits, seed=0, output=output
        )

    def written(sessions: int, episodes: int, steps: int) -> Any:
        path = folder / "x.jsonl"
        path.unlink(missing_ok=True)
        return kept(sessions, episodes, steps, path)

    return {
        "bare loop": lambda *of: background.run(bare(url, *of)),
        "rollout": kept,
        "rollout, to a file": written,
    }


def measured(way: Callable[[], Any]) -> tuple[float, float]:
    """Return the wall-clock seconds and the CPU seconds of a way."""
    wall, cpu = time.perf_counter(), time.process_time()
    way()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made, serving(Path(made)) as url:
        for steps in arguments.steps:
            for sessions in arguments.sessions:
                rows += compared(url, Path(made), sessions, steps, arguments)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print("| steps | sessions | | µs CPU an episode | of the bare loop's | wall, of the loop's |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {row['steps']} | {row['sessions']} | {row['way']} | {row['cpu_us']:.0f} "
            f"| {row['cpu_ratio']:.2f} | {row['wall_ratio']:.2f} |"
        )


def compared(
    url: str, folder: Path, sessions: int, steps: int, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run all ways in each round, and return the medians."""
    found: dict[str, list[tuple[float, float]]] = {}
    known = ways(url, folder)
    for number in range(arguments.rounds + 1):  # the first round is a warm-up
        for name, way in known.items():
            took = measured(lambda: way(sessions, arguments.episodes, steps))  # noqa: B023
            if number:
                found.setdefault(name, []).append(took)
        print(f"{steps} steps, {sessions} sessions: round {number}", file=sys.stderr)
    loop = found["bare loop"]
    return [
        {
            "steps": steps,
            "sessions": sessions,
            "way": name,
            "cpu_us": statistics.median(cpu for _, cpu in rounds) / arguments.episodes * 1e6,
            "cpu_ratio": statistics.median(
                cpu / base for (_, cpu), (_, base) in zip(rounds, loop, strict=True)
            ),
            "wall_ratio": statistics.median(
                wall / base for (wall, _), (base, _) in zip(rounds, loop, strict=True)
            ),
        }
        for name, rounds in found.items()
    ]


if __name__ == "__main__":
    main()
