"""Reward functions in the manner of TRL, which is not needed for them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pytest

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import bounded, from_rubric, from_trl, to_trl
from openenv.rewards.external.limits import CONCURRENCY
from openenv.tasks.task import Task

Episode = Trajectory[Any, Any]


def episode(said: str, answer: str | None = "4") -> Episode:
    criteria = {} if answer is None else {"answer": answer}
    task = Task(id="sum", prompt="2 + 2?", criteria=criteria)
    return Trajectory([({"content": said}, {"text": ""})], task=task)


def exact(completions: list[str], answer: list[str], **kwargs: Any) -> list[float]:
    return [float(said == right) for said, right in zip(completions, answer, strict=True)]


def short(prompts: list[str], completions: list[str]) -> list[float | None]:
    assert prompts == ["2 + 2?"] * len(completions)
    return [None if not said else 1 / len(said) for said in completions]


def score(scorer: Any, trajectory: Episode) -> Score:
    found: Score = asyncio.run(scorer(trajectory))
    return found


def scores(scorer: Any, *said: str) -> list[Score]:
    found: list[Score] = asyncio.run(scorer.score_many([episode(one) for one in said]))
    return found


def test_a_function_takes_prompts_completions_and_the_columns_of_the_task() -> None:
    assert score(from_trl(exact), episode("4")) == Score(1.0)
    assert [one.value for one in scores(from_trl(exact), "4", "5", "4")] == [1.0, 0.0, 1.0]


def test_several_functions_are_added_up_by_their_weights_and_are_the_components() -> None:
    scorer = from_trl(exact, short, weights=[1.0, 0.5])
    first, second, third = scores(scorer, "4", "four", "")
    assert first == Score(1.5, {"exact": 1.0, "short": 0.5})
    assert second == Score(0.125, {"exact": 0.0, "short": 0.125})
    assert third == Score(0.0, {"exact": 0.0})


def test_a_group_is_one_call() -> None:
    calls: list[int] = []

    def counted(completions: list[str], **kwargs: Any) -> list[float]:
        calls.append(len(completions))
        return [1.0] * len(completions)

    scorer = bounded(from_trl(counted))
    asyncio.run(scorer.score_many([episode("4") for _ in range(8)]))
    assert calls == [8]


def test_a_function_that_is_awaited_and_one_that_gives_an_array() -> None:
    async def later(completions: list[str], **kwargs: Any) -> list[float]:
        await asyncio.sleep(0)
        return [2.0] * len(completions)

    def array(completions: list[str], **kwargs: Any) -> Any:
        return np.ones(len(completions), dtype=np.float32)

    assert score(from_trl(later, array), episode("4")) == Score(3.0, {"later": 2.0, "array": 1.0})


def test_a_conversational_function_takes_messages() -> None:
    def seen(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
        assert prompts[0] == [{"role": "user", "content": "2 + 2?"}]
        assert completions[0] == [{"role": "assistant", "content": "4"}]
        return [1.0]

    assert score(from_trl(seen, conversational=True), episode("4")).value == 1.0


def test_a_function_is_given_what_the_trainer_would_and_no_more_than_it_takes() -> None:
    def logging_one(completions: list[str], log_extra: Any, trainer_state: Any) -> list[float]:
        assert log_extra is None and trainer_state is None
        return [1.0]

    assert score(from_trl(logging_one), episode("4")).value == 1.0


def test_a_function_that_says_nothing_of_any_has_nothing_to_score() -> None:
    assert score(from_trl(short), episode("")) == Score()


@pytest.mark.parametrize(
    "given",
    [[], [1.0, 2.0], None, 1.0, "a", ["high"], [float("nan")], [float("inf")], [10**400]],
    ids=lambda given: repr(given)[:12],
)
def test_what_is_no_list_of_one_number_each_is_no_score(given: Any) -> None:
    def odd(completions: list[str], **kwargs: Any) -> Any:
        return given

    with pytest.raises(Unscored, match="odd gave"):
        asyncio.run(bounded(from_trl(odd))(episode("4")))


def test_a_column_that_is_not_there_is_named() -> None:
    def wants(completions: list[str], solution: list[str], **kwargs: Any) -> list[float]:
        return [1.0]

    with pytest.raises(Unscored, match="wants takes solution, and the columns are"):
        score(from_trl(wants), episode("4"))


def test_an_episode_without_a_column_that_others_have_has_none_there() -> None:
    def wants(completions: list[str], answer: list[str | None]) -> list[float | None]:
        return [None if right is None else 1.0 for right in answer]

    batch = [episode("4"), episode("4", answer=None)]
    with_answer, without = asyncio.run(from_trl(wants).score_many(batch))
    assert (with_answer.value, without) == (1.0, Score())


def test_functions_of_one_name_and_weights_that_do_not_fit_are_refused() -> None:
    for functions, options in [((), {}), ((exact, exact), {}), ((exact,), {"weights": [1, 2]})]:
        with pytest.raises(ValueError):
            from_trl(*functions, **options)  # type: ignore[arg-type]


def test_scores_of_functions_of_a_module_can_be_kept_on_disk() -> None:
    assert from_trl(exact).identity == from_trl(exact).identity is not None
    assert from_trl(exact, short).identity != from_trl(exact).identity
    assert from_trl(exact, short, weights=[1, 2]).identity != from_trl(exact, short).identity


# ------------------------------------------------------------------ the other way


def right(trajectory: Any) -> float:
    said = trajectory[-1][0].content
    if said == "?":
        raise Unscored("it is a question")
    return float(said == trajectory.task.criteria.answer)


def test_a_scorer_of_ours_is_called_as_trl_calls_it(caplog: pytest.LogCaptureFixture) -> None:
    reward = to_trl(right)
    with caplog.at_level(logging.WARNING):
        given = reward(
            prompts=["2 + 2?"] * 3,
            completions=["4", "5", "?"],
            answer=["4", "4", "4"],
            trainer_state=object(),
        )
    assert given == [1.0, 0.0, None]
    assert "it is a question" in caplog.text
    assert reward.__name__ == "right"


def test_a_conversation_is_an_episode() -> None:
    prompt = [{"role": "user", "content": "2 + 2?"}]
    said = [{"role": "assistant", "content": "4"}]
    assert to_trl(right)([prompt], [said], answer=["4"]) == [1.0]
    assert to_trl(right)([prompt], [[]], answer=["4"]) == [None]


def test_a_rubric_is_awaited_also_where_a_loop_runs() -> None:
    async def awaited(action: Any, observation: Any) -> float:
        await asyncio.sleep(0)
        return 0.5

    reward = to_trl(from_rubric(awaited), name="judge")

    async def inside() -> list[float | None]:
        return reward(["p"], ["a"])

    assert reward(["p"], ["a"]) == asyncio.run(inside()) == [0.5]
    assert reward.__name__ == "judge"


def test_what_is_awaited_is_awaited_together_and_a_few_at_a_time() -> None:
    running: list[int] = []
    most = 0

    async def slow(trajectory: Any) -> float:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.pop()
        return float(trajectory[-1][0].content)

    said = [str(number) for number in range(40)]
    assert to_trl(slow)(said, said) == list(map(float, said))
    assert most == CONCURRENCY
    most = 0
    assert to_trl(bounded(slow, concurrency=2))(said, said) == list(map(float, said))
    assert most == 2


def test_a_scorer_of_batches_is_called_once_for_all_that_can_be_scored() -> None:
    calls = []

    class Batched:
        def __call__(self, trajectory: Any) -> float:
            raise AssertionError("it scores several in one call")

        def score_many(self, trajectories: Any) -> list[float]:
            calls.append(len(trajectories))
            return [float(one[-1][0].content) for one in trajectories]

    assert to_trl(Batched())(["p"] * 3, ["1", [], "2"]) == [1.0, None, 2.0]
    assert calls == [2]


def test_there_and_back_again_is_the_same() -> None:
    scorer = from_trl(to_trl(right, name="right"))
    assert [one.value for one in scores(scorer, "4", "5")] == [1.0, 0.0]
