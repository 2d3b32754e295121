"""Play episodes by verifiers, as it evaluates and as prime-rl trains; run by a Python that has it.

    python verifiers_play.py MODEL_URL '[{"taskset": {"id": ...}}, ...]'

Prints what came of each of the configurations as JSON: a list of episodes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.utils import loaders


async def play(config: dict[str, Any], model: vf.ModelContext) -> list[dict[str, Any]]:
    env = loaders.load_environment(loaders.resolve_env_config(config))
    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task)]
        episodes = await asyncio.gather(*(env.run_slot(slot, model) for slot in slots))
    return [told(episode) for episode in episodes]


def told(episode: Any) -> dict[str, Any]:
    (trace,) = episode.traces or [None]
    found = {"ok": episode.ok, "task": episode.task.data.name, "errors": []}
    found["errors"] = [f"{error.type}: {error.message}" for error in episode.errors]
    if trace is not None:
        found["trace_ok"] = trace.ok
        found["rewards"] = {name: one.score for name, one in trace.rewards.items()}
        found["metrics"] = trace.metrics
        found["stop"] = trace.stop_condition
        found["messages"] = [
            [
                one.role,
                one.content or "",
                [call.name for call in getattr(one, "tool_calls", ()) or ()],
            ]
            for one in trace.messages
        ]
    return found


async def main(url: str, configs: list[dict[str, Any]]) -> list[Any]:
    os.environ["NO_KEY"] = "none"
    client = vf.EvalClientConfig(base_url=f"{url}/v1", api_key_var="NO_KEY")
    model = vf.ModelContext("toy", client)
    return [await play(config, model) for config in configs]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))) + "\n")
