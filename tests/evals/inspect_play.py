"""Run environments as tasks of Inspect AI, by a Python that has it. Prints what came of it as JSON.

The model is Inspect AI's own mock, whose answers are written here; all else is real: the server,
the sessions, Inspect AI.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage
from inspect_ai.scorer import exact, includes, match
from inspect_ai.solver import generate
from support.servers import serving
from support.sums import SumAction, SumObservation, SumsEnvironment

from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from echo_env.server.app import app as echo_app
from openenv import create_app
from openenv.evals import EvalConfig, InspectAIHarness
from openenv.evals.inspect import task

Said = Callable[[list[ChatMessage]], ModelOutput]

LOGS, SCORED = Path("logs"), Path("scored")


def text(words: str) -> ModelOutput:
    return ModelOutput.from_content("mockllm", words)


def call(name: str, **arguments: Any) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm", name, arguments)


def model(say: Said) -> dict[str, Any]:
    """What has Inspect AI ask a mock; usage is given, else it fetches a tokeniser."""

    def output(messages: list[ChatMessage], *_: Any) -> ModelOutput:
        said = say(messages)
        said.usage = ModelUsage(input_tokens=5, output_tokens=1, total_tokens=6)
        return said

    return {"model": "mockllm/model", "model_args": {"custom_outputs": output}}


def run(made: Task, say: Said, **options: Any) -> dict[str, Any]:
    (log,) = eval(made, **model(say), log_dir=str(LOGS), display="none", **options)
    samples = log.samples or []
    return {
        "status": log.status,
        "error": log.error.message if log.error else None,
        "sample_errors": [one.error.message for one in samples if one.error],
        "name": log.eval.task,
        "metrics": {
            name: metric.value
            for score in (log.results.scores if log.results else [])
            for name, metric in score.metrics.items()
        },
        "unscored": [score.unscored_samples for score in log.results.scores] if log.results else [],
        "samples": [
            {
                "id": one.id,
                "epoch": one.epoch,
                "value": repr(score.value),
                "metadata": score.metadata,
                "explanation": score.explanation,
                "messages": [[m.role, m.text] for m in one.messages],
            }
            for one in samples
            for score in (one.scores or {}).values()
        ],
        "tells_secrets": "secret" in log.model_dump_json(),
    }


# ------------------------------------------------------------------ what the model says


def last_sum(messages: list[ChatMessage]) -> str:
    asked = next(m.text for m in reversed(messages) if "+" in m.text)
    left, _, right = asked.rpartition("What is ")[2].rstrip("?").partition(" + ")
    return str(int(left) + int(right))


def sums() -> dict[str, Any]:
    """A text is the action, and the answer is the environment's secret."""
    tasks = [
        {
            "id": f"{a}+{b}",
            "prompt": f"What is {a} + {b}?",
            "criteria": {"answer": f"{a + b} is secret"},
        }
        for a, b in ((1, 1), (2, 3), (20, 22))
    ]
    tasks.append({"id": "broken", "prompt": "What is 1 + 0?", "criteria": {"answer": "broken"}})
    app = create_app(SumsEnvironment, SumAction, SumObservation)
    with serving(app) as url:
        made = task(url, tasks)
        by_text = run(made, lambda messages: text(last_sum(messages)))
        by_tool = run(made, lambda messages: call("sum", answer=last_sum(messages)))
        wrong = run(made, lambda messages: text("0"), epochs=2)
        mute = run(task(url, tasks[:1]), lambda messages: text(""), message_limit=12)
    return {"text": by_text, "tool": by_tool, "wrong": wrong, "mute": mute}


def echo() -> dict[str, Any]:
    """An environment with tools, which scores none of their calls."""
    tasks = [{"id": "hello", "reset": {"task": "say-hello"}, "metadata": {"language": "en"}}]
    with serving(echo_app) as url:
        said = run(
            task(url, tasks),
            lambda messages: call("echo_message", message="hello"),
            message_limit=9,
        )
        idle = run(task(url, tasks), lambda messages: text("I would rather not."))
        wrong = run(task(url, tasks), lambda messages: call("echo_message", massage="hello"))
        other = run(task(url, [{"id": "x", "reset": {"task": "nowhere"}}]), lambda _: text(""))
    return {"said": said, "idle": idle, "wrong": wrong, "other": other}


def blackjack() -> dict[str, Any]:
    """In this process, and of seeds in place of tasks: the same cards in each epoch."""
    made = task(BlackjackEnvironment, limit=12, seed=3, name="blackjack", epochs=2)
    stands = run(made, lambda messages: call("blackjack", action="stand"))
    folds = run(made, lambda messages: text("I fold."))
    return {"stands": stands, "folds": folds}


def misused() -> list[str]:
    """What is refused before anything is played."""
    said = []
    for wrong in ({"limit": 0}, {"split": "test"}):
        try:
            task(BlackjackEnvironment, **wrong)
        except ValueError as error:
            said.append(str(error))
    return said


def unreachable() -> dict[str, Any]:
    return run(task("http://127.0.0.1:9"), lambda messages: text(""))


# ------------------------------------------------------------------ the harness


def a_task() -> Task:
    samples = [Sample(input="Say yes.", target="yes"), Sample(input="Say no.", target="no")]
    return Task(dataset=samples, solver=generate(), scorer=[includes(), match()])


def harness() -> dict[str, Any]:
    yes = model(lambda messages: text("yes, or no"))
    evaluate = InspectAIHarness(log_dir=str(LOGS))
    config = EvalConfig(
        harness_name=evaluate.name,
        harness_version="0.3",
        library_versions={},
        dataset="yes-no",
        eval_parameters={**yes, "task": a_task(), "max_samples": 1, "temperature": 0.5},
    )
    told: dict[str, Any] = {"both": evaluate.run_from_config(config).scores}

    def scores(**parameters: Any) -> dict[str, Any]:
        return evaluate.run("0.3", {}, "yes-no", {**yes, "task": a_task(), **parameters})

    evaluate = InspectAIHarness(log_dir=str(SCORED))
    told["one"] = scores(scorer=exact())
    in_files = [read_eval_log(one) for one in list_eval_logs(str(SCORED))]
    told["in files"] = [score.name for log in in_files for score in log.results.scores]
    told["reduced"] = scores(epochs=Epochs(2, ["mean", "pass_at_1"]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores(temprature=1.0)
    told["warned"] = [
        [type(one.message).__name__, str(one.message), one.filename] for one in caught
    ]
    told["refused"] = {}
    for name, parameters in {
        "no model": {"model": None},
        "broken": {**model(broken), "task": a_task()},
    }.items():
        try:
            scores(**parameters)
        except Exception as error:
            told["refused"][name] = [type(error).__name__, str(error)]
    return told


def broken(messages: list[ChatMessage]) -> ModelOutput:
    raise RuntimeError("the model is broken")


if __name__ == "__main__":
    told = {
        made.__name__: made() for made in (sums, echo, blackjack, misused, unreachable, harness)
    }
    sys.stdout.write(json.dumps(told) + "\n")
