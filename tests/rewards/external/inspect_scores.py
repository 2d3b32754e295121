"""Score by Inspect AI, and be a scorer of it; run by a Python that has it. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import (
    Score,
    Target,
    accuracy,
    exact,
    includes,
    match,
    mean,
    model_graded_qa,
    scorer,
)
from inspect_ai.solver import TaskState, generate

from openenv.errors import Unscored
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import bounded, from_inspect, from_rubric, to_inspect
from openenv.rewards.rubric import Rubric


def episode(said: str, **criteria: Any) -> Trajectory[Any, Any]:
    task = {"id": "t", "prompt": "2 + 2?", "criteria": criteria, "metadata": {"level": 1}}
    return Trajectory([({"content": said}, None)], task=task)


def outcome(scorer: Any, trajectory: Trajectory[Any, Any]) -> Any:
    """The value, or why there is none."""
    try:
        return asyncio.run(bounded(scorer)(trajectory)).value
    except Unscored as error:
        return str(error)
    except Exception as error:
        return type(error).__name__


def model(*said: str) -> Any:
    """A model that says this; it says what it used, or else Inspect fetches a tokenizer."""
    outputs = [ModelOutput.from_content("mockllm/model", one) for one in said]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return get_model("mockllm/model", custom_outputs=outputs, memoize=False)


def gives(value: Any, **more: Any) -> Any:
    """A scorer of Inspect that gives this."""

    @scorer(metrics=[mean()], name="gives")  # type: ignore[untyped-decorator]
    def made() -> Any:
        async def score(state: Any, target: Any) -> Any:
            return value if value is None else Score(value=value, **more)

        return score

    return made()


@scorer(metrics=[accuracy()])  # type: ignore[untyped-decorator]
def looks() -> Any:
    async def score(state: TaskState, target: Target) -> Any:
        calls = [c.function for m in state.messages for c in getattr(m, "tool_calls", None) or []]
        seen = [state.input_text, [m.role for m in state.messages], calls, state.metadata["level"]]
        return Score(
            value=seen == ["2 + 2?", ["user", "assistant", "tool", "assistant"], ["add"], 1]
        )

    return score


def here() -> dict[str, Any]:
    """Scorers of Inspect as ours."""
    told: dict[str, Any] = {}
    told["match"] = [
        outcome(from_inspect(match(numeric=True)), episode(said, answer="4"))
        for said in ("It is 4", "It is 5")
    ]
    told["targets"] = outcome(from_inspect(includes()), episode("b", target=["a", "b"]))
    told["exact"] = outcome(from_inspect(exact()), episode("x", solution="x"))
    told["no target"] = outcome(from_inspect(exact()), episode("x"))
    call = {"tool_name": "add", "arguments": {"a": 2}}
    steps = [(call, {"tool_name": "add", "result": 4}), ({"content": "4"}, None)]
    task = episode("", answer="4").task
    told["looks"] = outcome(from_inspect(looks()), Trajectory(steps, task=task))
    told["silent"] = outcome(from_inspect(exact()), Trajectory(task=task))
    judge = model_graded_qa(model=model("GRADE: C", "I cannot say."))
    told["judge"] = [outcome(from_inspect(judge), episode("4", answer="4")) for _ in range(2)]
    told["values"] = [
        outcome(from_inspect(gives(value)), episode("x", answer=""))
        for value in ("C", "P", "N", "I", True, 0.3, "yes", "0.5", "maybe", math.nan, None)
    ]
    unscored = Score.unscored(reason="grader_failed", explanation="the judge was silent")
    told["unscored"] = outcome(
        from_inspect(gives(unscored.value, explanation=unscored.explanation)),
        episode("x", answer=""),
    )
    several = gives({"a": 1.0, "b": "C", "c": 0.5})
    told["several"] = outcome(from_inspect(several), episode("x", answer=""))
    mean_of = from_inspect(several, combine=lambda parts: sum(parts.values()) / len(parts))
    told["combined"] = outcome(mean_of, episode("x", answer=""))
    missing = from_inspect(gives({"a": 1.0, "b": None}), combine=lambda parts: max(parts.values()))
    told["one missing"] = outcome(missing, episode("x", answer=""))
    return told


class Right(Rubric):
    """Scores what was said against the sample's target, and cannot score a question."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target

    def forward(self, action: Any, observation: Any) -> float:
        if action.content.endswith("?"):
            raise Unscored("it asks back")
        return float(action.content == self.target)


async def right(trajectory: Any) -> Any:
    rubric = Right(trajectory.task.criteria.target)
    assert trajectory.task.prompt and trajectory.first.text == trajectory.task.prompt
    return await from_rubric(rubric)(trajectory)


def there() -> dict[str, Any]:
    """A rubric of ours in a real run of Inspect."""
    samples = [Sample(input=f"{n} + {n}?", target=str(2 * n)) for n in (2, 3, 4)]
    task = Task(dataset=samples, solver=generate(), scorer=to_inspect(right, name="right"))
    with tempfile.TemporaryDirectory() as logs:
        played = model("4", "7", "what?")
        (log,) = eval(task, model=played, log_dir=logs, display="none", max_samples=1)
        assert log.status == "success", str(log.error)[:2000]
        given = [sample.scores["right"] for sample in log.samples]  # which are read now
    (scores,) = log.results.scores
    return {
        "name": scores.name,
        "scored": [scores.scored_samples, scores.unscored_samples],
        "mean": scores.metrics["mean"].value,
        "values": [None if math.isnan(one.value) else one.value for one in given],
        "why": given[2].explanation,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"here": here(), "there": there()}) + "\n")
