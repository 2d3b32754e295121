"""Play a taskset of verifiers; run by a Python that has it. Prints what came of it as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openenv import GenericEnvClient
from openenv.server.loading import TargetError, load_target
from openenv.types import public_view
from openenv.wrappers import from_verifiers


def refusal(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def play() -> dict[str, Any]:
    told: dict[str, Any] = {}
    app = load_target("verifiers:sums_taskset")
    with GenericEnvClient.local(app, message_timeout_s=120).sync() as env:
        told["before"] = refusal(lambda: env.step({"content": "4"}))
        told["asked"] = env.reset(task="2").observation["messages"]
        told["empty"] = refusal(lambda: env.step({}))
        right = env.step({"content": "4"})
        told["right"] = (right.reward, right.done, right.observation["rewards"], right.components)
        told["after"] = refusal(lambda: env.step({"content": "4"}))
        told["no_task"] = refusal(lambda: env.reset(task="77"))
        env.reset(task="3")  # which is abandoned
        env.reset(task="1")
        broken = env.step({"content": "boom"})
        told["broken"] = (broken.reward, broken.done, broken.reward_info)
    return told


async def look() -> list[Any]:
    env = from_verifiers("sums_taskset")()
    task = env.get_task("tasks", 3)
    try:
        return [env.list_splits(), env.num_tasks("tasks"), task.data["answer"], public_view(task)]
    finally:
        await env.close_async()


def targets() -> list[str]:
    found = []
    for target in ("verifiers:nowhere_here", "verifiers:sums_taskset?wheels=4"):
        try:
            load_target(target)
        except TargetError as error:
            found.append(str(error))
    return found


if __name__ == "__main__":
    outcome = {**play(), "tasks": asyncio.run(look()), "targets": targets()}
    sys.stdout.write(json.dumps(outcome) + "\n")
