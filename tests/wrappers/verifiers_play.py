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
from openenv.wrappers.verifiers import LARGEST_BODY, LARGEST_HEAD, ModelEndpoint


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


async def overflow() -> list[str]:
    """The first line of the answer to some requests: too large ones, and one that is not."""
    endpoint = ModelEndpoint()
    await endpoint.open()
    port = int(endpoint.url.split(":")[2].partition("/")[0])

    async def answer(request: bytes) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        told = (await reader.read()).decode()
        writer.close()
        head, _, body = told.partition("\r\n\r\n")
        return f"{head.partition(chr(13))[0]} | {body}"

    try:
        return [
            await answer(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (LARGEST_BODY + 1)),
            await answer(b"POST / HTTP/1.1\r\nX: " + b"y" * LARGEST_HEAD),
            await answer(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n1"),
        ]
    finally:
        endpoint.close()


def targets() -> list[str]:
    found = []
    for target in ("verifiers:nowhere_here", "verifiers:sums_taskset?wheels=4"):
        try:
            load_target(target)
        except TargetError as error:
            found.append(str(error))
    return found


if __name__ == "__main__":
    outcome = {
        **play(),
        "tasks": asyncio.run(look()),
        "targets": targets(),
        "overflow": asyncio.run(overflow()),
    }
    sys.stdout.write(json.dumps(outcome) + "\n")
