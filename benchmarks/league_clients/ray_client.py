"""Ray actors in the league: an actor for each session, in a process of its own."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import ray  # type: ignore[import-not-found]  # in the contender's virtual environment
from playing import Order, play_batches, tell  # type: ignore[import-not-found]  # in this folder


class Echo:
    def __init__(self) -> None:
        self.steps = 0

    def reset(self) -> str:
        self.steps = 0
        return ""

    def step(self, text: str) -> tuple[str, float]:
        self.steps += 1
        return text, 1.0


Actor: Any = ray.remote(num_cpus=0)(Echo)


class EchoBatch:
    def __init__(self, count: int) -> None:
        self._actors = [Actor.remote() for _ in range(count)]

    def reset(self) -> None:
        assert not any(ray.get([actor.reset.remote() for actor in self._actors]))

    def step(self, texts: list[str]) -> tuple[Any, Any]:
        asked = [actor.step.remote(text) for actor, text in zip(self._actors, texts, strict=True)]
        answers, rewards = zip(*ray.get(asked), strict=True)
        return answers, rewards

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)


def main() -> None:
    order = Order.given()
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            num_cpus=os.cpu_count(),
            object_store_memory=100 << 20,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        found = play_batches(order, EchoBatch, notes_ended=True)
        ray.shutdown()
    tell(found)


if __name__ == "__main__":
    main()
