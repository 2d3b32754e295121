"""verifiers' `EnvClient` in the league.

A request of the env server runs a whole episode: the server plays it with a model, whose requests
are all that reaches the client. So the policy is a model server in this process, which is what a
trainer has there. A step is a turn: the model calls the tool, and its next request has the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import verifiers.v1 as vf
from aiohttp import web
from playing import (  # type: ignore[import-not-found]  # in this folder
    COLD_STEPS,
    EPISODE_STEPS,
    Meter,
    Order,
    check,
    tell,
    texts,
)
from verifiers.v1.serve import EnvClient

TOOL = "echo_say"
WARM_UP_STEPS = 3  # a rollout sends all its earlier turns again with every step


class Policy:
    """A model that calls the tool until the rollout's steps are done."""

    def __init__(self) -> None:
        self.texts: Iterator[str] = texts()
        self.sent: dict[str, tuple[str, float]] = {}
        self.left: dict[str, float] = {}  # steps that a rollout still has to take
        self.taken: dict[str, int] = {}
        self.waits: list[float] | None = None
        self.gate = asyncio.Event()  # closed until all rollouts have taken their first steps
        self.gate.set()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not self.gate.is_set() and self._is_warm(body["messages"]):
            await self.gate.wait()
        message = self._message(body["messages"])
        choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        head = {"id": "none", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            choices = [{**choice, "message": message}]
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            return web.json_response(
                {**head, "object": "chat.completion", "choices": choices, "usage": usage}
            )
        for number, call in enumerate(message.get("tool_calls", ())):
            call["index"] = number
        chunk = {
            **head,
            "object": "chat.completion.chunk",
            "choices": [{**choice, "delta": message}],
        }
        text = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    def _is_warm(self, messages: list[dict[str, Any]]) -> bool:
        """Take the answer in a request; return whether the rollout has taken its first steps."""
        rollout = self._take(messages)
        return bool(self.taken.get(rollout, 0) >= WARM_UP_STEPS)

    def _take(self, messages: list[dict[str, Any]]) -> str:
        """Take and check the answer in a request, if it is new; return the rollout's name."""
        rollout = _text(messages[0])
        last = messages[-1]
        if last["role"] == "tool" and rollout in self.sent:
            text, began = self.sent.pop(rollout)
            check(text, _text(last), 1.0)
            self.taken[rollout] = self.taken.get(rollout, 0) + 1
            if self.waits is not None:
                self.waits.append(time.perf_counter() - began)
            self.left[rollout] -= 1
        return rollout

    def _message(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        rollout = self._take(messages)
        if self.left[rollout] <= 0:
            return {"role": "assistant", "content": "done"}
        text = next(self.texts)
        self.sent[rollout] = text, time.perf_counter()
        call = {"name": TOOL, "arguments": json.dumps({"text": text})}
        calls = [{"id": f"call_{text}", "type": "function", "function": call}]
        return {"role": "assistant", "content": None, "tool_calls": calls}


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


class Rollouts:
    def __init__(self, client: EnvClient, policy: Policy, model_url: str) -> None:
        self.client, self.policy = client, policy
        self.model = vf.EvalClientConfig(base_url=f"{model_url}/v1", api_key_var="NO_KEY")
        self.number = 0

    async def run(self, steps: float) -> None:
        self.number += 1
        name = str(self.number)
        self.policy.left[name] = steps
        data = vf.TaskData(idx=self.number, prompt=name).model_dump(mode="json")
        episode = await self.client.run(self.model, "policy", vf.SamplingConfig(), data)
        if not episode.ok:
            traces = [error for trace in episode.traces for error in trace.errors]
            raise RuntimeError(f"an episode failed: {[*episode.errors, *traces]}")
        (trace,) = episode.traces
        scores = {name: reward.score for name, reward in trace.rewards.items()}
        if scores != {"steps": float(self.policy.taken[name])}:
            raise ValueError(f"{self.policy.taken[name]} steps were scored {scores}")


async def played(order: Order, rollouts: Rollouts) -> dict[str, Any]:
    await rollouts.run(1)  # prepares the environment of the harness, once for a server
    if order.workload == "warm":
        return await held(order, rollouts)
    is_cold = order.workload == "cold"
    steps = COLD_STEPS if is_cold else EPISODE_STEPS
    episodes = order.sessions if is_cold else order.episodes
    left = iter(range(episodes))

    async def slot() -> None:
        for _ in left:
            await rollouts.run(steps)

    meter = Meter(order.server)
    await asyncio.gather(*(slot() for _ in range(min(order.sessions, episodes))))
    found: dict[str, Any] = meter.result(episodes * steps, episodes, ends_all=True)
    return found


async def held(order: Order, rollouts: Rollouts) -> dict[str, Any]:
    """Measure long episodes for some seconds, once all have taken a few steps and wait."""
    policy = rollouts.policy
    policy.taken.clear()
    policy.gate.clear()
    running = asyncio.gather(*(rollouts.run(float("inf")) for _ in range(order.sessions)))
    while len(policy.taken) < order.sessions or min(policy.taken.values()) < WARM_UP_STEPS:
        await asyncio.sleep(0.05)
        if running.done():
            await running
    meter, before = Meter(order.server), sum(policy.taken.values())
    policy.waits = meter.waits
    policy.gate.set()
    await asyncio.sleep(order.seconds)
    found: dict[str, Any] = meter.result(sum(policy.taken.values()) - before, 0, ends_all=False)
    policy.left = dict.fromkeys(policy.left, 0)
    await running
    return found


async def main() -> None:
    order = Order.given()
    os.environ["NO_KEY"] = "none"
    policy = Policy()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", policy.complete)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    client = EnvClient(f"tcp://127.0.0.1:{urlsplit(order.url).port}")
    await client.wait_for_server_startup(interval=0.2)
    rollouts = Rollouts(client, policy, f"http://127.0.0.1:{port}")
    found = await played(order, rollouts)
    await runner.cleanup()
    tell(found)
    os._exit(0)  # the context of ZeroMQ would be waited for


if __name__ == "__main__":
    asyncio.run(main())
