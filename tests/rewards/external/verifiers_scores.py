"""Score by verifiers, and be a reward of it; run by a Python that has it. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from openenv.errors import Unscored
from openenv.rewards.delayed import Trajectory, score_trajectory_async
from openenv.rewards.external import from_rubric, from_verifiers, to_verifiers
from openenv.rewards.rubric import Rubric


def episode(*said: str, **criteria: Any) -> Trajectory[Any, Any]:
    task = {"id": "t", "prompt": "2 + 2?", "criteria": criteria, "timeout": "long"}
    return Trajectory([({"content": one}, {"text": "go on"}) for one in said], task=task)


def outcome(scorer: Any, trajectory: Trajectory[Any, Any]) -> Any:
    """The value and its components, or why there is none."""
    score = asyncio.run(score_trajectory_async(scorer, trajectory))
    return score.unscored or [score.value, dict(score.components)]


def refusal(*sources: Any) -> str:
    try:
        from_verifiers(*sources)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


# ------------------------------------------------------------------ rewards of verifiers


class SumData(vf.TaskData):  # type: ignore[misc]
    answer: str


class SumTask(vf.Task[SumData]):  # type: ignore[misc]
    @vf.reward(weight=2.0)  # type: ignore[untyped-decorator]
    async def exact(self, trace: Any) -> float:
        if trace.last_reply == "boom":
            raise RuntimeError("the reward broke")
        return float(trace.last_reply == self.data.answer)

    @vf.reward  # type: ignore[untyped-decorator]
    async def style(self, task: Any, trace: Any) -> Mapping[str, float]:
        assert task.prompt_text == "2 + 2?"
        return {"turns": trace.num_turns / 10, "users": len(trace.messages) / 100}

    @vf.metric  # type: ignore[untyped-decorator]
    async def length(self, trace: Any) -> float:
        return float(len(trace.transcript))


class NeedsABox(SumTask):
    @vf.reward  # type: ignore[untyped-decorator]
    async def tests_pass(self, runtime: Any) -> float:
        return 1.0


@vf.reward(weight=0.5)  # type: ignore[untyped-decorator]
async def right(task: Any, trace: Any) -> float:
    return float(trace.last_reply == task.answer)


def classic(prompt: Any, completion: Any, answer: str, state: Any, **kwargs: Any) -> float:
    """As functions of rubrics were before 0.4."""
    assert prompt == [{"role": "user", "content": "2 + 2?"}] and state == {}
    return float(completion[-1]["content"] == answer)


def wants_more(completion: Any, rubric_text: str) -> float:
    return 1.0


async def infinite(trace: Any) -> float:
    return float("inf")


class Model(BaseHTTPRequestHandler):
    """An endpoint of chat completions for judges."""

    says = "yes"

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        assert "2 + 2?" in asked
        message = {"role": "assistant", "content": self.says}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = json.dumps(
            {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
            | {"choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def judged() -> list[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["JUDGE_KEY"] = "k"
    url = f"http://127.0.0.1:{server.server_port}/v1"
    config = vf.ReferenceJudgeConfig(base_url=url, api_key_var="JUDGE_KEY", model="m", weight=3.0)
    found = []
    for Model.says in ("yes", "no", "perhaps"):
        found.append(outcome(from_verifiers(vf.ReferenceJudge(config)), episode("4", answer="4")))
    server.shutdown()
    server.server_close()
    return found


def here() -> dict[str, Any]:
    """What scores in verifiers as ours."""
    told: dict[str, Any] = {}
    told["class"] = outcome(from_verifiers(SumTask), episode("no", "4", answer="4"))
    task = SumTask(SumData(prompt="2 + 2?", answer="5"))
    told["instance"] = outcome(from_verifiers(task), episode("5", answer="other"))
    told["broken"] = outcome(from_verifiers(SumTask), episode("boom", answer="4"))
    told["no answer"] = outcome(from_verifiers(SumTask), episode("4"))
    told["function"] = outcome(from_verifiers(right), episode("4", answer="4"))
    told["classic"] = outcome(from_verifiers(classic), episode("4", answer="4"))
    told["both"] = outcome(from_verifiers(right, classic), episode("4", answer="4"))
    told["twice"] = outcome(from_verifiers(right, right), episode("4", answer="4"))
    told["wants more"] = outcome(from_verifiers(wants_more), episode("4", answer="4"))
    told["infinite"] = outcome(from_verifiers(infinite), episode("4"))
    told["judge"] = judged()
    told["refused"] = [refusal(NeedsABox), refusal(3), refusal()]
    return told


# ------------------------------------------------------------------ rewards for verifiers


class Right(Rubric):
    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, action: Any, observation: Any) -> float:
        if action.content == "?":
            raise Unscored("it asks back")
        return float(action.content == self.answer)


async def solved(trajectory: Any) -> Any:
    assert trajectory.first.text == trajectory.task.prompt == "2 + 2?"
    return await from_rubric(Right(trajectory.task.criteria.answer))(trajectory)


reward = to_verifiers(solved, weight=0.5)


class OurTask(vf.Task[SumData]):  # type: ignore[misc]
    solved = reward


def trace(said: str) -> Any:
    data = SumData(prompt="2 + 2?", answer="4")
    nodes = [
        vf.MessageNode(message=vf.UserMessage(content="2 + 2?")),
        vf.MessageNode(parent=0, message=vf.AssistantMessage(content=said), sampled=True),
    ]
    of = vf.TraceTask(type="OurTask", data=data)
    return vf.Trace(task=of, agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes)


def scored(task: Any, said: str) -> Any:
    made = trace(said)
    try:
        asyncio.run(task.score(made))
    except vf.TaskError as error:
        return [str(error), dict(made.rewards)]
    return [made.reward, {name: [one.score, one.weight] for name, one in made.rewards.items()}]


def there() -> dict[str, Any]:
    """A rubric of ours as a reward of verifiers."""
    data = SumData(prompt="2 + 2?", answer="4")
    path = f"{Path(__file__).stem}:reward"
    config = vf.TaskConfig(rewards={"plugged": vf.RewardFunctionConfig(fn=path)})
    return {
        "in a task": [scored(OurTask(data), said) for said in ("4", "5", "?")],
        "plugged": scored(vf.Task(data, config), "4"),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"here": here(), "there": there()}) + "\n")
