"""A program that plays sums until there are no more: ``player.py URL TASKS OUTPUT CONCURRENCY``."""

from __future__ import annotations

import sys
from typing import Any

from openenv.rollouts import rollout
from openenv.tasks.load import load_tasks


def add(observation: dict[str, Any]) -> dict[str, Any]:
    return {"value": observation["first"] + observation["second"]}


def say(observation: dict[str, Any], step: int) -> dict[str, str]:
    return {"word": ("a", "over")[step]}


def mistaken(observation: dict[str, Any]) -> dict[str, str]:
    raise ZeroDivisionError


def length(trajectory: list[Any]) -> float:
    return float(len(trajectory))


def main(url: str, tasks: str, output: str, concurrency: str) -> None:
    run = rollout(
        url,
        add,
        load_tasks(tasks),
        concurrency=int(concurrency),
        output=output,
        resume=True,
        seed=1,
    )
    sys.stdout.write(f"{run.summary().rollouts} {run.summary().retries}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
