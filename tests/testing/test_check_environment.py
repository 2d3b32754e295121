"""Each promise is broken by a planted environment, and exactly that check finds it."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field, create_model
from support.environments import KINDS

from openenv import Action, Environment, NotSupported, Observation, Refused, State, StepResult
from openenv.environment import scored
from openenv.reward import REWARD_INFO, RewardSpec, Score
from openenv.testing import CheckFailed, check_environment
from openenv.testing import environment as checks
from openenv.testing.actions import minimal_action


class Guess(Action):
    number: int = 0


class Hint(Observation):
    roll: int = 0
    extra: Any = None


class Dice(Environment[Guess, Hint, State]):
    """Keeps every promise: three rolls of seeded dice."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD: ClassVar[RewardSpec | None] = RewardSpec(range=(0.0, 1.0), components=("roll", "luck"))

    def __init__(self) -> None:
        self.rng = random.Random(0)
        self.now = State()
        self.over = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Hint:
        self.rng = random.Random(seed)
        self.now = State(episode_id=episode_id)
        self.over = False
        return Hint(roll=self.rng.randrange(1000))

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Hint:
        if self.over:
            raise RuntimeError("the episode is over; call reset")
        self.now.step_count += 1
        self.over = self.now.step_count == 3
        hint = Hint(roll=self.rng.randrange(1000), done=self.over)
        return scored(hint, Score(1.0, {"roll": 0.75, "luck": 0.25}))

    @property
    def state(self) -> State:
        return self.now

    def render(self) -> str:
        if self.now.episode_id is None and not self.now.step_count and self.over:
            raise Refused("no dice are on the table; call reset")
        return f"{self.now.step_count} of 3 rolls"

    def snapshot(self) -> bytes:
        stored = {"rng": self.rng.getstate(), "now": self.now.model_dump(), "over": self.over}
        return json.dumps(stored).encode()

    def restore(self, data: bytes) -> None:
        stored = json.loads(data)
        version, words, gauss = stored["rng"]
        self.rng = random.Random()
        self.rng.setstate((version, tuple(words), gauss))
        self.now, self.over = State(**stored["now"]), stored["over"]


class DoneAtReset(Dice):
    def reset(self, *args: Any, **kwargs: Any) -> Hint:
        return super().reset(*args, **kwargs).model_copy(update={"done": True})


class InfiniteReward(Dice):
    def step(self, *args: Any, **kwargs: Any) -> Hint:
        return super().step(*args, **kwargs).model_copy(update={"reward": float("inf")})


class RestlessState(Dice):
    reads = 0

    @property
    def state(self) -> State:
        self.reads += 1
        return State(
            episode_id=self.now.episode_id or str(self.reads), step_count=self.now.step_count
        )


class Uncounted(Dice):
    @property
    def state(self) -> State:
        return State(episode_id=self.now.episode_id)


class OwnEpisodeId(Dice):
    @property
    def state(self) -> State:
        return State(episode_id="mine", step_count=self.now.step_count)


class TupleTurnsList(Dice):
    class Grid(Hint):
        extra: Any = None

        def model_post_init(self, context: Any) -> None:
            if isinstance(self.extra, list):
                self.extra.append("again")

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        hint = super().step(*args, **kwargs)
        return self.Grid(roll=hint.roll, reward=1.0, done=hint.done, extra=[1])


class Left(BaseModel):
    by: int = 1


class Right(BaseModel):
    by: int = 1


class RollsSomewhere(Dice):
    class Rolled(Hint):
        where: Left | Right = Left()

    def reset(self, *args: Any, **kwargs: Any) -> Hint:
        return self.Rolled(roll=super().reset(*args, **kwargs).roll)


class DeafToSeeds(Dice):
    SUPPORTS_CONCURRENT_SESSIONS = False

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kw: Any) -> Hint:
        return super().reset(None, episode_id)


class GlobalDice(Dice):
    """Seeded, but by a generator that all instances share."""

    shared = random.Random()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kw: Any) -> Hint:
        hint = super().reset(seed, episode_id)
        GlobalDice.shared.seed(seed)
        self.rng = GlobalDice.shared
        return hint


class NeedsAnObject(Dice):
    """Declares an argument that no caller can send."""

    def reset(self, level: object = object()) -> Hint:  # type: ignore[override]
        return super().reset()


class BrokenByEarlyStep(Dice):
    spoiled = False

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        if self.over and self.now.step_count == 0:
            self.spoiled = True
        return super().step(*args, **kwargs)

    def reset(self, *args: Any, **kwargs: Any) -> Hint:
        hint = super().reset(*args, **kwargs)
        if self.spoiled:
            self.now.step_count = 1
        return hint


class StartsAnew(Dice):
    def step(self, *args: Any, **kwargs: Any) -> Hint:
        if self.over and self.now.step_count:
            return self.reset()
        return super().step(*args, **kwargs)


class KeepsCounting(Dice):
    """A reset in mid episode goes on with the old count."""

    def reset(self, *args: Any, **kwargs: Any) -> Hint:
        before, running = self.now.step_count, not self.over
        hint = super().reset(*args, **kwargs)
        if running and before:
            self.now.step_count = before
        return hint


class ForgetsTheDice(Dice):
    """What it goes back to looks alike, and rolls otherwise."""

    def restore(self, data: bytes) -> None:
        rng = self.rng
        super().restore(data)
        self.rng = rng


class CannotBeStored(Dice):
    def snapshot(self) -> bytes:
        raise NotSupported("this episode cannot be stored", feature="snapshot")


class HasNoSnapshots(Dice):
    snapshot = restore = None  # type: ignore[assignment]


class ShakesWhenDrawn(Dice):
    def render(self) -> str:
        return f"rolled {self.rng.randrange(1000)}"


class CountsDrawings(Dice):
    def render(self) -> str:
        self.now.step_count += 1
        return "one more"


class DrawsObjects(Dice):
    def render(self) -> str:
        return {"rolled": 1}  # type: ignore[return-value]  # on purpose


class DrawsEarly(Dice):
    """It raises what is meant for nobody where there is nothing to show."""

    def render(self) -> str:
        if self.over:
            raise KeyError("board")
        return "dice"


class DrawsNothing(Dice):
    def render(self) -> str:
        raise NotSupported("nothing to draw with", feature="render")


class DrawsNot(Dice):
    render = None  # type: ignore[assignment]


class Miscounts(Dice):
    """Its components do not add up."""

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        return super().step(*args, **kwargs).model_copy(update={"reward": 0.5})


class ScoredAndNot(Dice):
    """Gives a reward and a reason why there is none."""

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        hint = super().step(*args, **kwargs)
        hint.metadata[REWARD_INFO] = {"unscored": "the judge is out"}
        return hint


class PartsOfNothing(Dice):
    def step(self, *args: Any, **kwargs: Any) -> Hint:
        return super().step(*args, **kwargs).model_copy(update={"reward": None})


class BeyondItsRange(Dice):
    REWARD = RewardSpec(range=(0.0, 0.5), components=("roll", "luck"))


class UndeclaredPart(Dice):
    REWARD = RewardSpec(range=(0.0, 1.0), components=("roll",))


class PaidBeforeTheEnd(Dice):
    REWARD = RewardSpec("terminal", components=("roll", "luck"))


class DeclaresNothing(Dice):
    REWARD = None

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        return scored(super().step(*args, **kwargs), Score(1.0))


class KeepsItsThread(Dice):
    def __init__(self) -> None:
        super().__init__()
        self.home = threading.get_ident()

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        if threading.get_ident() != self.home:
            raise RuntimeError("called from another thread")
        return super().step(*args, **kwargs)


class SaysThatItDoesNot(KeepsItsThread):
    SUPPORTS_ANY_THREAD = True


class LocksItsThread(Dice):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()

    def reset(self, *args: Any, **kwargs: Any) -> Hint:
        self.lock.acquire()
        return super().reset(*args, **kwargs)

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        with self.lock:
            return super().step(*args, **kwargs)


class SaysThatItLocksNothing(LocksItsThread):
    SUPPORTS_ANY_THREAD = True


class CountsPerThread(Dice):
    SUPPORTS_ANY_THREAD = True
    seen = threading.local()

    def step(self, *args: Any, **kwargs: Any) -> Hint:
        self.seen.steps = getattr(self.seen, "steps", 0) + 1 if self.now.step_count else 1
        hint = super().step(*args, **kwargs)
        hint.extra = self.seen.steps
        return hint


class TakesItsTime(Dice):
    def step(self, *args: Any, **kwargs: Any) -> Hint:
        time.sleep(0.02)
        return super().step(*args, **kwargs)


class LoudClose(Dice):
    def close(self) -> None:
        raise OSError("cannot close")


BROKEN = {
    checks.RESET_BEGINS: DoneAtReset,
    checks.STEP_RETURNS: InfiniteReward,
    checks.STATE_BEFORE_RESET: RestlessState,
    checks.STEPS_ARE_COUNTED: Uncounted,
    checks.EPISODE_ID_IS_KEPT: OwnEpisodeId,
    checks.VALUES_ROUND_TRIP: TupleTurnsList,
    checks.KINDS_ARE_TOLD_APART: RollsSomewhere,
    checks.SEED_IS_HONOURED: DeafToSeeds,
    checks.ARGUMENTS_ARE_TAKEN: NeedsAnObject,
    checks.STEP_BEFORE_RESET: BrokenByEarlyStep,
    checks.STEP_AFTER_DONE: StartsAnew,
    checks.RESET_ABANDONS: KeepsCounting,
    checks.INSTANCES_ARE_APART: GlobalDice,
    checks.ANY_THREAD_WILL_DO: SaysThatItDoesNot,
    checks.SNAPSHOT_RESTORES: ForgetsTheDice,
    checks.RENDER_ONLY_SHOWS: ShakesWhenDrawn,
    checks.COMPONENTS_ADD_UP: Miscounts,
    checks.REWARD_KEEPS_ITS_SPEC: BeyondItsRange,
    checks.CLOSE_IS_QUIET: LoudClose,
}


@pytest.mark.parametrize(
    ("promise", "cls"), BROKEN.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_a_broken_promise_is_found_by_its_own_check(promise: str, cls: type[Any]) -> None:
    with pytest.raises(CheckFailed) as caught:
        check_environment(cls, actions=[Guess()])
    assert promise in [finding.promise for finding in caught.value.report.broken]
    assert promise in str(caught.value)


def test_every_promise_has_a_planted_breach() -> None:
    assert set(checks.PROMISES) == set(BROKEN)


class DiceOfAnyThread(Dice):
    SUPPORTS_ANY_THREAD = True


def test_a_sound_environment_keeps_every_promise() -> None:
    report = check_environment(DiceOfAnyThread, actions=[Guess()])
    assert [finding.kept for finding in report.findings] == [True] * len(checks.PROMISES)
    assert not report.advice


def test_an_episode_that_threads_change_is_found() -> None:
    with pytest.raises(CheckFailed) as caught:
        check_environment(CountsPerThread, actions=[Guess()])
    broken = {finding.promise: finding.detail for finding in caught.value.report.broken}
    assert "they part at step 2" in broken[checks.ANY_THREAD_WILL_DO]


def test_a_quick_class_is_advised_to_share_threads() -> None:
    report = check_environment(Dice, actions=[Guess()])
    (advice,) = report.advice
    assert "declare SUPPORTS_ANY_THREAD = True" in advice
    assert "3 steps" in advice
    assert f"advice: {advice}" in str(report)


@pytest.mark.slow("waits until a call on another thread is given up")
@pytest.mark.parametrize("cls", [LocksItsThread, SaysThatItLocksNothing])
def test_a_call_that_waits_for_another_thread_is_given_up(
    cls: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "MIN_SCATTERED_S", 2.0)
    try:
        report = check_environment(cls, actions=[Guess()])
    except CheckFailed as failed:
        report = failed.report
    (finding,) = [one for one in report.findings if one.promise == checks.ANY_THREAD_WILL_DO]
    assert finding.kept is (False if cls is SaysThatItLocksNothing else None)
    assert "did not return within" in finding.detail
    assert not report.advice


@pytest.mark.parametrize("cls", [KeepsItsThread, TakesItsTime])
def test_a_class_that_needs_its_thread_or_is_slow_is_not_advised(cls: type[Any]) -> None:
    report = check_environment(cls, actions=[Guess()])
    (finding,) = [one for one in report.findings if one.promise == checks.ANY_THREAD_WILL_DO]
    assert finding.kept is None
    assert not report.advice


@pytest.mark.slow("starts a worker process")
def test_drawing_is_checked_in_worker_processes_too() -> None:
    report = check_environment(Dice, actions=[Guess()], workers=1)
    (finding,) = [f for f in report.findings if f.promise == checks.RENDER_ONLY_SHOWS]
    assert finding.kept


@pytest.mark.parametrize("cls", [CannotBeStored, HasNoSnapshots])
def test_snapshots_are_optional(cls: type[Any]) -> None:
    report = check_environment(cls, actions=[Guess()])
    (finding,) = [f for f in report.findings if f.promise == checks.SNAPSHOT_RESTORES]
    assert finding.kept is None


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (ShakesWhenDrawn, "to draw an episode changed it: they part at step 1"),
        (CountsDrawings, "the state was"),
        (DrawsObjects, "render returned dict"),
        (DrawsEarly, "KeyError"),
    ],
)
def test_drawing_changes_nothing_and_gives_a_picture(cls: type[Any], why: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        check_environment(cls, actions=[Guess()])
    (finding,) = caught.value.report.broken
    assert finding.promise == checks.RENDER_ONLY_SHOWS and why in finding.detail


@pytest.mark.parametrize(
    ("cls", "promise", "why"),
    [
        (Miscounts, checks.COMPONENTS_ADD_UP, "add up to 1, and the reward is 0.5"),
        (ScoredAndNot, checks.COMPONENTS_ADD_UP, "could not be scored: the judge is out"),
        (PartsOfNothing, checks.COMPONENTS_ADD_UP, "the reward is None and has components"),
        (BeyondItsRange, checks.REWARD_KEEPS_ITS_SPEC, "1.0 is not from 0.0 to 0.5"),
        (UndeclaredPart, checks.REWARD_KEEPS_ITS_SPEC, "['luck'] are not among those declared"),
        (PaidBeforeTheEnd, checks.REWARD_KEEPS_ITS_SPEC, "before the end"),
    ],
)
def test_what_rewards_mean_is_checked(cls: type[Any], promise: str, why: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        check_environment(cls, actions=[Guess()])
    (finding,) = caught.value.report.broken
    assert finding.promise == promise and why in finding.detail


def test_what_rewards_mean_need_not_be_declared() -> None:
    report = check_environment(DeclaresNothing, actions=[Guess()])
    kept = {finding.promise: finding.kept for finding in report.findings}
    assert kept[checks.REWARD_KEEPS_ITS_SPEC] is None and kept[checks.COMPONENTS_ADD_UP] is None


@pytest.mark.parametrize("cls", [DrawsNothing, DrawsNot])
def test_drawing_is_optional(cls: type[Any]) -> None:
    report = check_environment(cls, actions=[Guess()])
    (finding,) = [f for f in report.findings if f.promise == checks.RENDER_ONLY_SHOWS]
    assert finding.kept is None


@pytest.mark.parametrize("cls", KINDS.values())
def test_every_form_of_environment_can_be_checked(cls: type[Any]) -> None:
    report = check_environment(cls)
    assert not report.broken


def test_a_promise_can_be_left_out() -> None:
    report = check_environment(LoudClose, actions=[Guess()], skip=[checks.CLOSE_IS_QUIET])
    assert report.findings[-1].kept is None


def test_actions_may_come_from_the_observation() -> None:
    seen: list[int] = []

    def policy(observation: Hint) -> Guess:
        seen.append(observation.roll)
        return Guess(number=observation.roll)

    check_environment(Dice, actions=policy)
    assert seen


def test_a_minimal_action_is_made_from_its_model() -> None:
    from enum import Enum
    from typing import Literal

    class Side(Enum):
        LEFT = "left"

    class Everything(Action):
        a: int = Field(ge=3)
        b: float
        c: str = Field(min_length=2)
        d: Literal["x", "y"]
        e: Side
        f: list[int] = Field(min_length=1)
        g: str | None
        h: Guess
        i: bool = True

    action = minimal_action(Everything)
    assert (action.a, action.c, action.d, action.e, action.f) == (3, "aa", "x", Side.LEFT, [0])


@pytest.mark.parametrize(
    ("kind", "bounds", "value"),
    [
        (float, {"gt": 0, "lt": 1}, 0.5),
        (float, {"gt": 2}, 3.0),
        (float, {"le": -1}, -1.0),
        (float, {"lt": 0}, -1.0),
        (int, {"gt": 0, "lt": 10}, 1),
        (int, {"lt": 0}, -1),
        (int, {"lt": 5}, 0),
        (int, {"ge": 3, "le": 3}, 3),
        (int, {"ge": 2**53 + 1}, 2**53 + 1),
        (int, {"gt": -3, "lt": -1}, -2),
        (float, {"gt": -1, "lt": 0}, -0.5),
        (float, {"ge": -0.5, "lt": 0}, -0.25),
        (float, {"gt": 1e17}, math.nextafter(1e17, math.inf)),
    ],
)
def test_the_bounds_of_a_number_are_kept(kind: Any, bounds: dict[str, Any], value: float) -> None:
    model: Any = create_model("Bounded", __base__=Action, n=(kind, Field(**bounds)))
    assert minimal_action(model).n == value


class ByResult(Dice):
    """step may return a StepResult, and the models may be read off its annotations."""

    def step(  # type: ignore[override]
        self, action: Guess, timeout_s: float | None = None
    ) -> StepResult[Hint]:
        hint = super().step(action)
        return StepResult(hint, hint.reward, hint.done)


def test_a_step_result_is_as_good_as_an_observation() -> None:
    check_environment(ByResult)


def test_the_arguments_that_are_given_are_passed_to_every_reset() -> None:
    class Told(Dice):
        def reset(  # type: ignore[override]
            self, task: Any = None, level: str = "easy", seed: int | None = None
        ) -> Hint:
            assert (task, level) == ({"id": 3}, "hard")
            return super().reset(seed=seed)

    report = check_environment(Told, reset_arguments={"task": {"id": 3}, "level": "hard"})
    assert report.broken == []
