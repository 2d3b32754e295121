"""What a rubric is: scoring, hooks, children, episodes, settings."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest
from rewards.rubrics import Awaited, Failing, FailingLater, Fixed

from openenv.environment import Environment
from openenv.errors import InvalidReturnError, Unscored
from openenv.rewards import Gate, Rubric, RubricDict, Sequential, WeightedSum
from openenv.types import Action, Observation, State


class Nested(Rubric):
    """Has children below children, and says itself what they come to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Fixed(0.25)
        self.second = Gate(Fixed(0.5), threshold=0.5)

    def forward(self, action: Any, observation: Any) -> float:
        return float(self.first(action, observation) + self.second(action, observation))


# ------------------------------------------------------------------ scoring


def test_a_call_gives_what_forward_gives_and_notes_it() -> None:
    rubric = Nested()
    assert rubric.last_score is None
    assert rubric("action", "observation") == 0.75 == rubric.last_score
    assert rubric.first.last_score == 0.25


def test_outside_of_a_loop_a_score_is_the_number_itself() -> None:
    assert type(Fixed(0.5)(0, 0)) is float
    assert Fixed(1)(0, 0) is Fixed(1).score


def test_an_async_rubric_gives_one_awaitable() -> None:
    rubric = Awaited(0.5)
    pending = rubric(0, 0)
    assert inspect.iscoroutine(pending) and rubric.last_score is None
    assert asyncio.run(pending) == 0.5 == rubric.last_score


@pytest.mark.anyio
@pytest.mark.parametrize(
    "rubric",
    [
        Fixed(0.5),
        Awaited(0.5),
        Sequential(),
        Sequential(Fixed(0.5)),
        Sequential(Fixed(0.0), Awaited(0.5)),
        Sequential(Awaited(0.0), Fixed(0.5)),
        Gate(Sequential(Fixed(0.5)), 0.25),
        WeightedSum([Fixed(0.5), Awaited(0.5)], [0.5, 0.5]),
    ],
)
async def test_in_a_loop_every_score_may_be_awaited(rubric: Rubric) -> None:
    score = await rubric(0, 0)
    assert type(score) is float and score == rubric.last_score


@pytest.mark.anyio
async def test_in_a_loop_a_score_that_is_there_is_a_number_too() -> None:
    score = Sequential(Fixed(0.5), Fixed(0.25))(0, 0)
    assert isinstance(score, float) and score * 2 == 0.5
    assert pickle.loads(pickle.dumps(score)) == 0.25


@pytest.mark.anyio
async def test_a_sync_forward_may_hand_on_what_has_to_be_awaited() -> None:
    class Handing(Rubric):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Awaited(0.5)

        def forward(self, action: Any, observation: Any) -> Any:
            return self.inner(action, observation)

    rubric = Handing()
    assert await rubric(0, 0) == 0.5 == rubric.last_score


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("wrap", [lambda r: r, Gate, lambda r: Sequential(r, Fixed(1.0))])
def test_a_score_that_is_not_finite_is_none(score: float, wrap: Any) -> None:
    rubric = wrap(Fixed(score))
    with pytest.raises(Unscored, match="fixed gave"):
        rubric(0, 0)
    assert rubric.last_score is None and rubric.components() == {}


@pytest.mark.parametrize("score", ["0.5", [1.0], {}])
def test_what_is_no_number_is_an_error(score: Any) -> None:
    with pytest.raises(InvalidReturnError, match="Fixed returned"):
        Fixed(score)(0, 0)


def test_a_step_may_have_nothing_to_score() -> None:
    rubric = Fixed(None)
    assert rubric(0, 0) is None and rubric.components() == {}


def test_what_fails_has_no_score_any_more() -> None:
    rubric = Fixed(0.5)
    rubric(0, 0)
    rubric.score = float("nan")
    with pytest.raises(Unscored):
        rubric(0, 0)
    assert rubric.last_score is None and rubric.components() == {}


# ------------------------------------------------------------------ hooks


def test_hooks_are_called_in_their_order_before_and_after() -> None:
    called: list[Any] = []
    rubric = Fixed(0.5)
    for i in range(2):
        rubric.register_forward_pre_hook(lambda *given, i=i: called.append(("pre", i, *given)))
        rubric.register_forward_hook(
            lambda *given, i=i: called.append(("post", i, given[0].last_score, *given[1:]))
        )
    rubric("a", "o")
    before = [("pre", i, rubric, "a", "o") for i in range(2)]
    assert called == [*before, *[("post", i, 0.5, "a", "o", 0.5) for i in range(2)]]


def test_pre_hooks_of_a_container_run_before_its_children() -> None:
    child = Fixed(1.0)
    for rubric in (Sequential(child), Gate(child), WeightedSum([child], [1.0])):
        before = child.asked
        seen: list[int] = []
        rubric.register_forward_pre_hook(lambda *_, seen=seen: seen.append(child.asked))
        rubric(0, 0)
        assert seen == [before] and child.asked == before + 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_hooks_may_be_coroutines(kind: type[Fixed]) -> None:
    called: list[Any] = []

    async def before(*given: Any) -> None:
        await asyncio.sleep(0)
        called.append("before")

    async def after(*given: Any) -> None:
        await asyncio.sleep(0)
        called.append(given[-1])

    rubric = kind(0.5)
    rubric.register_forward_pre_hook(before)
    rubric.register_forward_hook(after)
    assert await rubric(0, 0) == 0.5 and called == ["before", 0.5]


@pytest.mark.anyio
async def test_after_a_hook_that_waited_the_score_is_still_that_of_the_call() -> None:
    over = asyncio.Event()

    async def after(rubric: Rubric, action: Any, observation: Any, score: float) -> None:
        if score == 0.5:
            await over.wait()

    async def evaluated(score: float) -> tuple[Any, Any]:
        rubric.score = score
        return await rubric(0, 0), rubric.components()

    rubric = Fixed()
    rubric.register_forward_hook(after)
    first = asyncio.ensure_future(evaluated(0.5))
    await asyncio.sleep(0)
    assert await evaluated(1.0) == (1.0, {"fixed": 1.0})
    over.set()
    assert await first == (0.5, {"fixed": 0.5}) and rubric.last_score == 0.5


def test_hooks_are_not_called_where_there_is_no_score() -> None:
    called: list[Any] = []
    rubric = Gate(Failing())
    rubric.register_forward_hook(lambda *given: called.append(given))
    rubric.rubric.register_forward_hook(lambda *given: called.append(given))
    with pytest.raises(Unscored, match="gone"):
        rubric(0, 0)
    assert called == []


# ------------------------------------------------------------------ children


def test_rubrics_that_are_assigned_become_children() -> None:
    rubric = Nested()
    assert list(rubric.children()) == [rubric.first, rubric.second]
    assert dict(rubric.named_children()) == {"first": rubric.first, "second": rubric.second}
    inner = rubric.second.rubric
    below = {"first": rubric.first, "second": rubric.second, "second.rubric": inner}
    assert list(rubric.named_rubrics()) == list(below.items())
    assert [path for path, _ in rubric.named_rubrics("p")] == [f"p.{path}" for path in below]
    assert list(rubric.rubrics()) == list(below.values())
    assert all(rubric.get_rubric(path) is found for path, found in below.items())


def test_what_is_assigned_over_a_child_replaces_it() -> None:
    rubric = Nested()
    rubric.first = replaced = Fixed(0.0)
    assert next(rubric.children()) is replaced
    rubric.first = None  # type: ignore[assignment]
    assert [name for name, _ in rubric.named_children()] == ["second"]
    del rubric.second
    assert list(rubric.children()) == []


@pytest.mark.parametrize("path", ["", "thrid", "first.rubric", "second."])
def test_a_path_that_is_none_is_an_error(path: str) -> None:
    with pytest.raises(KeyError):
        Nested().get_rubric(path)


def test_a_misspelt_path_gets_a_suggestion() -> None:
    with pytest.raises(KeyError, match=r"did you mean 'second\.rubric'"):
        Nested().get_rubric("second.rubrik")


def test_a_subclass_may_leave_the_constructor_out() -> None:
    class Careless(Rubric):
        def __init__(self) -> None:
            self.child = Fixed(0.5)

        def forward(self, action: Any, observation: Any) -> Any:
            return self.child(action, observation)

    first, second = Careless(), Careless()
    assert first(0, 0) == 0.5 and list(first.children()) == [first.child] != [second.child]


def test_a_copy_is_a_rubric_of_its_own() -> None:
    rubric = Nested()
    rubric(0, 0)
    for made in (copy.deepcopy(rubric), pickle.loads(pickle.dumps(rubric))):
        made.first.score = 0.0
        assert made(0, 0) == 0.5 and made.get_rubric("first") is made.first
    assert rubric(0, 0) == 0.75


def test_a_rubric_without_forward_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="forward"):
        Rubric()  # type: ignore[abstract]


# ------------------------------------------------------------------ episodes and settings


class Counting(Fixed):
    """Remembers something of an episode, and a setting."""

    def reset(self) -> Any:
        self.asked = 0
        return super().reset()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "score": self.score}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.score = state.get("score", self.score)


class CountingLater(Counting):
    async def reset(self) -> None:
        await asyncio.sleep(0)
        super().reset()


def tree(leaf: Rubric) -> Rubric:
    return WeightedSum({"x": Gate(Sequential(leaf), 0.0), "y": Fixed(0.0)}, {"x": 0.5, "y": 0.5})


def test_a_reset_reaches_every_rubric_below() -> None:
    leaf = Counting(0.5)
    rubric = tree(leaf)
    rubric(0, 0)
    assert leaf.asked == 1
    assert rubric.reset() is None and leaf.asked == 0


def test_a_reset_is_awaited_where_one_below_has_to_be() -> None:
    leaf = CountingLater(0.5)
    rubric = tree(leaf)
    rubric(0, 0)
    asyncio.run(rubric.reset())
    assert leaf.asked == 0


def test_settings_are_those_of_the_rubrics_below_too() -> None:
    rubric, other = tree(Counting(0.5)), tree(Counting(0.25))
    state = rubric.state_dict()
    assert state == {"x": {"rubric": {"rubric_0": {"score": 0.5}}}}
    other.load_state_dict(state)
    assert other.get_rubric("x.rubric.rubric_0").state_dict() == {"score": 0.5}


def test_what_has_no_settings_takes_any() -> None:
    assert Nested().state_dict() == {}
    Nested().load_state_dict({"first": {"a": 1}, "b": 2})


# ------------------------------------------------------------------ components


def test_a_rubric_is_one_component_by_the_name_of_its_class() -> None:
    class LLMJudgeOfAnswers2(Fixed): ...

    rubric = LLMJudgeOfAnswers2(0.5)
    assert rubric.components() == {}
    rubric(0, 0)
    assert rubric.components() == {"llm_judge_of_answers2": 0.5}


def test_a_rubric_with_its_own_forward_is_one_component() -> None:
    rubric = Nested()
    rubric(0, 0)
    assert rubric.components() == {"nested": 0.75}


class Telling(Nested):
    def components(self) -> dict[str, float]:
        return {"first": self.first.last_score or 0.0, "second": self.second.last_score or 0.0}


def test_a_rubric_may_say_what_its_score_is_made_of() -> None:
    rubric = WeightedSum({"x": Telling(), "y": Fixed(1.0)}, {"x": 0.5, "y": 0.5})
    rubric(0, 0)
    assert rubric.components() == {"x.first": 0.125, "x.second": 0.25, "y": 0.5}


def test_components_that_do_not_add_up_are_not_handed_on() -> None:
    class Lying(Telling):
        def components(self) -> dict[str, float]:
            return {"first": 5.0}

    rubric = WeightedSum({"x": Lying()}, [1.0])
    rubric(0, 0)
    assert rubric.components() == {"x": 0.75}


# ------------------------------------------------------------------ in an environment


class Scored(Environment[Action, Observation, State]):
    """Is scored by a rubric, as authors write it."""

    def reset(self, *given: Any, **more: Any) -> Observation:
        self._reset_rubric()
        return Observation()

    def step(self, action: Action, *given: Any, **more: Any) -> Observation:
        seen = Observation()
        seen.reward = self._apply_rubric(action, seen)
        return seen

    async def step_async(self, action: Action, *given: Any, **more: Any) -> Observation:
        seen = Observation()
        seen.reward = await self._apply_rubric_async(action, seen)
        return seen

    @property
    def state(self) -> State:
        return State()


def told(seen: Observation) -> Any:
    return seen.reward, seen.metadata.get("reward_info")


def parts(kind: type[Fixed]) -> Rubric:
    return WeightedSum({"right": kind(1.0), "short": kind(0.5)}, [0.75, 0.25])


PARTS = {"components": {"right": 0.75, "short": 0.125}}


def test_an_environment_tells_the_components_of_a_reward() -> None:
    assert told(Scored(rubric=parts(Fixed)).step(Action())) == (0.875, PARTS)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_an_environment_on_a_loop_tells_them_too(kind: type[Fixed]) -> None:
    assert told(await Scored(rubric=parts(kind)).step_async(Action())) == (0.875, PARTS)


@pytest.mark.anyio
async def test_a_plain_step_on_a_loop_tells_them_too() -> None:
    assert told(Scored(rubric=parts(Fixed)).step(Action())) == (0.875, PARTS)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Failing, FailingLater])
async def test_what_cannot_be_scored_is_no_reward_and_says_why(kind: type[Rubric]) -> None:
    env = Scored(rubric=Sequential(Gate(kind()), Fixed(1.0)))
    assert told(await env.step_async(Action())) == (None, {"unscored": "the grader is gone"})


@pytest.mark.anyio
async def test_an_environment_on_a_loop_awaits_the_reset_of_a_rubric() -> None:
    leaf = CountingLater(0.5)
    env = Scored(rubric=tree(leaf))
    await env.step_async(Action())
    await env._reset_rubric_async()
    assert leaf.asked == 0


class Steps(Rubric):
    """Counts the steps of an episode, which it is told of by `reset_async`."""

    steps = 0

    async def forward(self, action: Any, observation: Any) -> float:
        self.steps += 1
        return float(self.steps)

    async def reset_async(self) -> None:
        await asyncio.sleep(0)
        self.steps = 0


@pytest.mark.anyio
@pytest.mark.parametrize("below", [False, True], ids=["itself", "below another"])
async def test_the_reset_async_of_a_rubric_is_awaited_between_episodes(below: bool) -> None:
    env = Scored(rubric=Gate(Steps(), threshold=0.0) if below else Steps())
    for reset in (env._reset_rubric_async, env.reset, env.reset):
        if inspect.isawaitable(outcome := reset()):
            await outcome
        env.reset()  # an episode without a step
        rewards = [(await env.step_async(Action())).reward for _ in range(2)]
        assert rewards == [1.0, 2.0]


def test_a_plain_rubric_is_reset_at_once_whatever_else_it_has() -> None:
    class Both(Rubric):
        begun = 0

        def forward(self, action: Any, observation: Any) -> float:
            return 0.5

        def reset(self) -> None:
            self.begun += 1

        async def reset_async(self) -> None:
            raise NotImplementedError

    env = Scored(rubric=Both())
    env.reset()
    assert env.step(Action()).reward == 0.5
    assert env.rubric.begun == 1


def test_a_rubric_is_imported_without_a_client_of_a_language_model() -> None:
    code = "import sys\nfrom openenv.rewards import Rubric\n"
    code += "print('openenv.rewards.llm' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "False\n"


def test_names_of_a_dictionary_are_paths_whatever_they_hold() -> None:
    inner = RubricDict({"b": Fixed(), "b.c": Fixed()})
    rubric = RubricDict({"a": inner, "a.d": Fixed(), "reset": Fixed()})
    assert rubric.get_rubric("a.b") is inner["b"]
    assert rubric.get_rubric("a.b.c") is inner["b.c"]
    assert rubric.get_rubric("a.d") is rubric["a.d"]
    assert rubric.get_rubric("reset") is rubric["reset"]
