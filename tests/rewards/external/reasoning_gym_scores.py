"""Score by Reasoning Gym, and be a scorer of it; run by a Python that has it. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from unittest import mock

import reasoning_gym
from reasoning_gym.composite import DatasetSpec
from reasoning_gym.factory import DATASETS

from openenv import GenericEnvClient
from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import (
    bounded,
    from_reasoning_gym,
    from_rubric,
    to_reasoning_gym,
)
from openenv.rewards.external.fields import with_fields
from openenv.rewards.external.reasoning_gym import EVALUATING, _names_used

SIZE = {"seed": 42, "size": 3}


def episode(said: str, entry: Any = None, **criteria: Any) -> Trajectory[Any, Any]:
    given = criteria if entry is None else {"entry": entry}
    return Trajectory([({"answer": said}, None)], task={"id": "t", "criteria": given})


def outcome(scorer: Any, trajectory: Trajectory[Any, Any]) -> Any:
    try:
        return asyncio.run(bounded(scorer)(trajectory)).value
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def refusal(*arguments: Any, **options: Any) -> str:
    try:
        from_reasoning_gym(*arguments, **options)
    except (ValueError, ImportError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def played(answer: str) -> Trajectory[Any, Any]:
    """An episode of the environment, as it would have been recorded."""
    from reasoning_gym_env.server.app import app

    with GenericEnvClient.local(app, message_timeout_s=60).sync() as env:
        first = env.reset(dataset_name="leg_counting", seed=42, size=3)
        expected = dict(env.state())["correct_answer"]
        last = env.step({"answer": answer.format(expected)})
    steps = [({"answer": answer.format(expected)}, with_fields(last.observation))]
    return Trajectory(steps, first=with_fields(first.observation))


def here() -> dict[str, Any]:
    """Datasets as scorers of ours."""
    legs = reasoning_gym.create_dataset("leg_counting", **SIZE)
    entry = legs[0]
    scorer = from_reasoning_gym("leg_counting")
    told: dict[str, Any] = {}
    told["scores"] = [outcome(scorer, episode(said, entry)) for said in (entry["answer"], "0", "")]
    told["by name"] = outcome(scorer, episode(entry["answer"], **entry))
    told["a dataset"] = outcome(from_reasoning_gym(legs), episode(entry["answer"], entry))
    told["no entry"] = outcome(scorer, episode("4"))
    told["broken entry"] = outcome(scorer, episode("4", {"question": "?"}))
    told["played"] = [outcome(scorer, played(said)) for said in ("{}", "no")]
    batch = [episode(said, entry) for said in (entry["answer"], "0")] + [episode("4", {})]
    scores: list[Score] = asyncio.run(bounded(scorer).score_many(batch))
    told["batch"] = [score.unscored or score.value for score in scores]
    named = from_reasoning_gym("leg_counting", answer=lambda trajectory: entry["answer"])
    told["answer"] = outcome(named, episode("<answer>", entry))
    told["identity"] = [
        from_reasoning_gym("chain_sum", min_terms=n).identity
        == from_reasoning_gym("chain_sum", min_terms=2).identity
        for n in (2, 3)
    ]
    told["refused"] = [
        refusal("leg_count"),
        refusal("leg_counting", legs=4),
        refusal(legs, size=3),
    ]
    return told


def programs() -> dict[str, Any]:
    """Answers that the library would run."""
    from reasoning_gym_env.server import guard

    modules = {module.__name__ for module in (*guard.EVALUATED, *guard.PARSED)}
    evaluating = {cls.__module__ for cls, _ in DATASETS.values() if EVALUATING & _names_used(cls)}
    told: dict[str, Any] = {
        "the same": [sorted(evaluating - modules), sorted(modules - evaluating)]
    }
    told["refused"] = [refusal("number_sorting"), refusal("bitwise_arithmetic")]
    told["allowed"] = refusal("number_sorting", may_evaluate=True)
    tests = {"countdown": "__import__('os').system('exit 3')", "n_queens": "exit(3)"}
    told["run"] = {}
    for name, program in tests.items():
        entry = reasoning_gym.create_dataset(name, **SIZE)[0]
        scorer = from_reasoning_gym(name)
        answers = [entry["answer"], program]
        told["run"][name] = [outcome(scorer, episode(said, entry)) for said in answers]
    hidden = {name: None for name in sys.modules if name.startswith("reasoning_gym_env")}
    with mock.patch.dict(sys.modules, hidden):  # as where the environment is not installed
        told["unguarded"] = refusal("countdown")
    parts = [DatasetSpec("leg_counting", 1, {}), DatasetSpec("countdown", 1, {})]
    whole = reasoning_gym.create_dataset("composite", datasets=parts, **SIZE)
    entries = [whole[n] for n in range(3)]
    scorer = from_reasoning_gym(whole)
    told["composite"] = [outcome(scorer, episode(one["answer"], one)) for one in entries]
    return told


def there() -> dict[str, Any]:
    """A rubric of ours in a dataset."""

    def short(action: Any, observation: Any) -> float:
        if action.content == "?":
            raise Unscored("it asks back")
        return 1 / (1 + len(action.content))

    async def solved(trajectory: Any) -> Any:
        assert trajectory.task.criteria.metadata.source_dataset == "leg_counting"
        assert trajectory.first.text == trajectory.task.prompt
        return await from_rubric(short)(trajectory)

    legs = reasoning_gym.create_dataset("leg_counting", **SIZE)
    ours = to_reasoning_gym(legs, solved)
    try:
        asked = ours.score_answer("?", ours[0])
    except Unscored as error:
        asked = str(error)
    return {
        "same": [ours[0] == legs[0], len(ours), isinstance(ours, type(legs))],
        "scores": [ours.score_answer(said, ours[0]) for said in ("abc", None)],
        "theirs": legs.score_answer("abc", legs[0]),
        "asked": asked,
    }


if __name__ == "__main__":
    told = {"here": here(), "programs": programs(), "there": there()}
    sys.stdout.write(json.dumps(told) + "\n")
