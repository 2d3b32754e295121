"""Rubrics made of rubrics: what they come to, and what that is made of."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rewards.rubrics import Awaited, Failing, FailingLater, Fixed

from openenv.errors import InvalidReturnError, Unscored
from openenv.reward import Score, adds_up
from openenv.rewards import Gate, Rubric, RubricDict, RubricList, Sequential, WeightedSum

KINDS = [Fixed, Awaited]


def score(rubric: Rubric) -> Any:
    outcome = rubric("action", "observation")
    return asyncio.run(outcome) if asyncio.iscoroutine(outcome) else outcome


# ------------------------------------------------------------------ what they come to


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("scores", "total", "asked"),
    [
        ([], 1.0, []),
        ([0.5], 0.5, [1]),
        ([1.0, 0.5, 0.25], 0.25, [1, 1, 1]),
        ([1.0, 0.0, 0.25], 0.0, [1, 1, 0]),
        ([1.0, -0.5, 0.25], 0.25, [1, 1, 1]),
        ([0.0, 0.25], 0.0, [1, 0]),
        ([1.0, 0.0], 0.0, [1, 1]),
    ],
)
def test_a_sequence_has_the_score_of_its_last_and_stops_at_0(
    kind: type[Fixed], scores: list[float], total: float, asked: list[int]
) -> None:
    children = [kind(one) for one in scores]
    assert score(Sequential(*children)) == total
    assert [child.asked for child in children] == asked


@pytest.mark.parametrize("kinds", ["sas", "asa", "ssa", "aas"])
def test_plain_and_awaited_rubrics_of_a_sequence_are_asked_once_each(kinds: str) -> None:
    children = [(Fixed if kind == "s" else Awaited)(0.5) for kind in kinds]
    assert score(Sequential(*children)) == 0.5
    assert [child.asked for child in children] == [1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("given", "threshold", "let"),
    [(0.8, 0.5, 0.8), (0.5, 0.5, 0.5), (0.4, 0.5, 0.0), (1.0, 1.0, 1.0), (-0.5, -1.0, -0.5)],
)
def test_a_gate_lets_what_is_at_least_its_threshold(
    kind: type[Fixed], given: float, threshold: float, let: float
) -> None:
    assert score(Gate(kind(given), threshold)) == let


def test_a_gate_lets_a_full_score_only_unless_told_otherwise() -> None:
    assert (score(Gate(Fixed(1.0))), score(Gate(Fixed(0.99)))) == (1.0, 0.0)


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_a_sum_weighs_its_rubrics(first: type[Fixed], second: type[Fixed]) -> None:
    rubric = WeightedSum([first(1.0), second(0.5)], [0.75, 0.25])
    assert score(rubric) == 0.875
    assert rubric.weights == [0.75, 0.25]
    rubric.weights.clear()
    assert rubric.weights == [0.75, 0.25]
    assert [name for name, _ in rubric.named_children()] == ["rubric_0", "rubric_1"]
    assert rubric.rubric_1 is rubric.get_rubric("rubric_1")


def test_a_sum_may_name_its_rubrics_and_weigh_them_by_name() -> None:
    named = {"right": Fixed(1.0), "short": Fixed(0.5)}
    for rubrics in (named, RubricDict(named)):
        rubric = WeightedSum(rubrics, {"short": 0.25, "right": 0.75})
        assert score(rubric) == 0.875 and rubric.weights == [0.75, 0.25]
        assert rubric.short is named["short"]
    assert score(WeightedSum(RubricList(named.values()), [0.75, 0.25])) == 0.875


def test_a_rubric_that_replaces_one_of_a_container_is_asked_instead() -> None:
    for rubric in (Sequential(Fixed(1.0)), WeightedSum([Fixed(1.0)], [1.0])):
        rubric.rubric_0 = Fixed(0.5)
        assert score(rubric) == 0.5


@pytest.mark.parametrize(
    ("rubrics", "weights", "named"),
    [
        ([Fixed()], [], "match"),
        ([], [], "sum to 1.0"),
        ([Fixed(), Fixed()], [0.5, 0.4], "sum to 1.0"),
        ([Fixed()], [float("nan")], "sum to 1.0"),
        ({"a": Fixed()}, {"b": 1.0}, "'a'"),
        ({"a.b": Fixed()}, [1.0], "a.b"),
        ({"": Fixed()}, [1.0], "dots"),
    ],
)
def test_a_sum_that_makes_no_sense_is_refused(rubrics: Any, weights: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        WeightedSum(rubrics, weights)


@pytest.mark.parametrize(
    "made",
    [
        lambda wrong: Sequential(wrong),
        lambda wrong: Gate(wrong),
        lambda wrong: WeightedSum([wrong], [1.0]),
        lambda wrong: RubricList([wrong]),
        lambda wrong: RubricDict({"a": wrong}),
        lambda wrong: RubricList().append(wrong),
    ],
)
def test_what_is_no_rubric_is_refused(made: Any) -> None:
    with pytest.raises(TypeError, match="int 3"):
        made(3)


@pytest.mark.parametrize("kind", KINDS)
def test_no_container_makes_a_score_of_none(kind: type[Fixed]) -> None:
    for rubric in (Gate(kind(None)), Sequential(kind(None)), WeightedSum([kind(None)], [1.0])):
        with pytest.raises(InvalidReturnError, match="returned None"):
            score(rubric)


# ------------------------------------------------------------------ what cannot be scored


@pytest.mark.parametrize("failing", [Failing, FailingLater])
@pytest.mark.parametrize(
    "wrap",
    [
        Gate,
        lambda one: Gate(one, 0.0),
        lambda one: Sequential(one, Fixed(1.0)),
        lambda one: WeightedSum([one, Fixed(1.0)], [0.0, 1.0]),
        lambda one: WeightedSum([Fixed(1.0), one], [1.0, 0.0]),
        lambda one: WeightedSum([Awaited(1.0), one, Awaited(1.0)], [0.5, 0.0, 0.5]),
    ],
)
def test_what_one_rubric_cannot_score_its_container_cannot(
    failing: type[Rubric], wrap: Any
) -> None:
    rubric = Sequential(wrap(failing()))
    with pytest.raises(Unscored, match="the grader is gone"):
        score(rubric)
    assert rubric.last_score is None and rubric.components() == {}
    gc.collect()  # what was begun and never awaited would warn now


def test_a_gate_that_is_closed_asks_nothing_below_it_and_so_nothing_fails() -> None:
    assert score(Sequential(Gate(Fixed(0.5)), Failing())) == 0.0


@pytest.mark.anyio
async def test_rubrics_of_a_sum_are_awaited_together() -> None:
    there: list[Rubric] = []
    both = asyncio.Event()

    class Meeting(Rubric):
        async def forward(self, action: Any, observation: Any) -> float:
            there.append(self)
            if len(there) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 5)
            return 1.0

    assert await WeightedSum([Sequential(Meeting()), Meeting()], [0.5, 0.5])(0, 0) == 1.0


@pytest.mark.anyio
async def test_where_one_fails_the_others_are_ended() -> None:
    ended = asyncio.Event()

    class Endless(Rubric):
        async def forward(self, action: Any, observation: Any) -> float:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return 1.0

    with pytest.raises(Unscored):
        await asyncio.wait_for(WeightedSum([Endless(), FailingLater()], [0.5, 0.5])(0, 0), 5)
    assert ended.is_set()


@pytest.mark.anyio
async def test_who_is_cancelled_ends_what_it_has_begun() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    class Endless(Rubric):
        async def forward(self, action: Any, observation: Any) -> float:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return 1.0

    task = asyncio.ensure_future(WeightedSum([Endless(), Awaited()], [0.5, 0.5])(0, 0))
    await asyncio.wait_for(begun.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


# ------------------------------------------------------------------ lists and dictionaries


def test_a_list_of_rubrics_is_a_list() -> None:
    first, second, third = Fixed(), Fixed(), Fixed()
    rubric = RubricList([first])
    rubric.append(second)
    rubric.extend([third])
    assert list(rubric) == [first, second, third] == list(rubric.children())
    assert (len(rubric), rubric[1], rubric[-1], rubric[:1]) == (3, second, third, [first])
    assert rubric.get_rubric("rubric_2") is third
    assert len(RubricList()) == 0


def test_a_dictionary_of_rubrics_is_a_dictionary() -> None:
    first, second = Fixed(), Fixed()
    rubric = RubricDict({"a": first})
    rubric["b"] = second
    rubric.update({"a": second})
    assert list(rubric) == list(rubric.keys()) == ["a", "b"]
    assert list(rubric.values()) == [second, second] and dict(rubric.items())["b"] is second
    assert ("a" in rubric, "c" in rubric, len(rubric), rubric.a) == (True, False, 2, second)
    with pytest.raises(KeyError):
        rubric["c"]
    with pytest.raises(AttributeError, match="'c'"):
        rubric.c  # noqa: B018


@pytest.mark.parametrize("key", ["reset", "forward", "items", "last_score", "a.b", "", "0", "é"])
def test_a_name_may_be_any_text_and_overwrites_nothing(key: str) -> None:
    inner = Fixed()
    rubric = RubricDict({key: inner})
    rubric.reset()
    assert rubric[key] is inner and list(rubric.items()) == [(key, inner)]
    assert rubric.last_score is None
    assert rubric.get_rubric(key) is inner


@pytest.mark.parametrize("rubric", [RubricList([Fixed()]), RubricDict({"a": Fixed()})])
def test_what_only_holds_rubrics_scores_nothing(rubric: Rubric) -> None:
    with pytest.raises(NotImplementedError, match=type(rubric).__name__):
        rubric(0, 0)


# ------------------------------------------------------------------ components


def components(rubric: Rubric) -> dict[str, float]:
    score(rubric)
    return rubric.components()


INNER = {"x": 0.5, "y": 0.5}


def inner(x: float, y: float) -> WeightedSum:
    return WeightedSum({"x": Fixed(x), "y": Awaited(y)}, INNER)


def test_a_sum_has_the_components_of_its_rubrics_by_their_weight() -> None:
    rubric = WeightedSum({"a": Fixed(1.0), "b": inner(1.0, 0.5)}, [0.5, 0.5])
    assert components(rubric) == {"a": 0.5, "b.x": 0.25, "b.y": 0.125}


def test_a_gate_has_the_components_of_its_rubric_and_zeros_when_it_is_closed() -> None:
    assert components(Gate(inner(1.0, 0.5), 0.75)) == {"x": 0.5, "y": 0.25}
    assert components(Gate(inner(1.0, 0.5), 0.76)) == {"x": 0.0, "y": 0.0}
    assert components(WeightedSum({"a": Gate(Fixed(0.5), 0.5)}, [1.0])) == {"a": 0.5}


def test_a_sequence_has_the_components_of_its_last_and_zeros_when_it_stops() -> None:
    assert components(Sequential(Fixed(1.0), inner(1.0, 0.5))) == {"x": 0.5, "y": 0.25}
    assert components(Sequential(Fixed(0.0), inner(1.0, 0.5))) == {"x": 0.0, "y": 0.0}
    assert components(Sequential(Fixed(1.0), inner(1.0, -1.0))) == {"x": 0.5, "y": -0.5}
    assert components(Sequential()) == {"sequential": 1.0}
    rubric = WeightedSum({"a": Sequential(Fixed(0.0), Gate(inner(1, 1)))}, [1.0])
    assert components(rubric) == {"a.x": 0.0, "a.y": 0.0}


def test_the_one_component_of_a_container_has_the_name_of_what_scores() -> None:
    assert components(Gate(Fixed(1.0))) == {"fixed": 1.0}
    assert components(Sequential(Fixed(1.0), Gate(Awaited(1.0)))) == {"awaited": 1.0}


def test_components_are_those_of_the_last_evaluation() -> None:
    first = Fixed(1.0)
    rubric = Sequential(first, inner(1.0, 1.0))
    assert components(rubric) == {"x": 0.5, "y": 0.5}
    first.score = 0.0
    assert components(rubric) == {"x": 0.0, "y": 0.0}


def test_a_rubric_that_is_asked_twice_counts_as_it_was_asked() -> None:
    class Rising(Fixed):
        def forward(self, action: Any, observation: Any) -> float:
            self.score += 1.0
            return float(self.score)

    one = Rising(0.0)
    assert components(WeightedSum([one, one], [0.5, 0.5])) == {"rubric_0": 0.5, "rubric_1": 1.0}


def test_a_subclass_that_changes_the_score_is_one_component() -> None:
    class AtLeastHalf(WeightedSum):
        def forward(self, action: Any, observation: Any) -> Any:
            return max(0.5, super().forward(action, observation))

    low = AtLeastHalf({"x": Fixed(0.0), "y": Fixed(0.25)}, INNER)
    high = AtLeastHalf({"x": Fixed(1.0), "y": Fixed(0.5)}, INNER)
    assert components(low) == {"at_least_half": 0.5}
    assert components(high) == {"x": 0.5, "y": 0.25}


@pytest.mark.anyio
async def test_two_evaluations_at_a_time_do_not_mix_their_components() -> None:
    turns = [asyncio.Event(), asyncio.Event()]

    class Waiting(Rubric):
        async def forward(self, action: Any, observation: Any) -> float:
            await turns[action].wait()
            return float(observation)

    rubric = WeightedSum({"a": Waiting(), "b": Gate(Waiting(), 0.0)}, [0.5, 0.5])

    async def evaluated(turn: int, score: float) -> tuple[float, dict[str, float]]:
        return await rubric(turn, score), rubric.components()

    tasks = [asyncio.ensure_future(evaluated(i, [1.0, 0.5][i])) for i in range(2)]
    for turn in reversed(turns):
        turn.set()
    assert await tasks[0] == (1.0, {"a": 0.5, "b": 0.5})
    assert await tasks[1] == (0.5, {"a": 0.25, "b": 0.25})


finite = st.floats(-1e6, 1e6)
leaves = st.builds(lambda kind, value: kind(value), st.sampled_from(KINDS), finite)


@st.composite
def sums(draw: st.DrawFn, children: st.SearchStrategy[Rubric]) -> Rubric:
    rubrics = draw(st.lists(children, min_size=1, max_size=4))
    shares = [draw(st.floats(-1, 1)) for _ in rubrics[1:]]
    return WeightedSum(rubrics, [1.0 - sum(shares), *shares])


def grown(children: st.SearchStrategy[Rubric]) -> st.SearchStrategy[Rubric]:
    return st.one_of(
        sums(children),
        st.builds(Gate, children, finite),
        st.lists(children, max_size=4).map(lambda rubrics: Sequential(*rubrics)),
    )


@pytest.mark.slow
@given(st.recursive(leaves, grown, max_leaves=12))
def test_components_always_add_up_to_the_score(rubric: Rubric) -> None:
    value = score(rubric)
    parts = rubric.components()
    assert value == rubric.last_score and adds_up(value, parts)
    assert Score(value, parts).components == parts
    assert len(parts) == len(rubric._part_names())
