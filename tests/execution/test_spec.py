"""Which arguments reach an environment, however its methods are written, and which are named."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environments import AsyncCounter, Counter, Do, HookCounter, Progress, Seen

from openenv import State, StepResult
from openenv.errors import InvalidArgumentError, InvalidReturnError, outward
from openenv.execution import runner
from openenv.execution.commands import Command, Reset, Step
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec, class_made_by, models_of, normalise, plan_for

pytestmark = pytest.mark.anyio

Open = Callable[[type], Any]


@pytest.fixture
async def open_session() -> AsyncIterator[Open]:
    sessions: list[Session] = []

    async def open_session(cls: type) -> Session:
        session = Session(EnvironmentSpec.of(cls, Do, Seen))
        await session.open()
        sessions.append(session)
        return session

    yield open_session
    for session in sessions:
        await session.close()


def tells(*taken: Any, **named: Any) -> Seen:
    """What every method below returns: the arguments that it got."""
    return Seen(text=repr(taken) if taken else "", arguments=named)


class Plain:
    """Methods without any argument; what the classes below do not override."""

    def reset(self) -> Seen:
        return tells()

    def step(self, action: Do) -> Seen:
        return tells()

    state = State()


class Named(Plain):
    def reset(self, size: int = 1, *, colour: str = "red") -> Seen:
        return tells(size=size, colour=colour)

    def step(self, action: Do, speed: int = 1, *, loud: bool = False) -> Seen:
        return tells(speed=speed, loud=loud)


class Anything(Plain):
    def reset(self, size: int = 1, **more: Any) -> Seen:
        return tells(size=size, **more)

    def step(self, action: Do, **more: Any) -> Seen:
        return tells(**more)


class Coroutines(Plain):
    async def reset(self, size: int = 1) -> Seen:  # type: ignore[override]
        return tells(size=size)

    async def step(self, action: Do, speed: int = 1) -> Seen:  # type: ignore[override]
        return tells(speed=speed)


class Hooked(Plain):
    """Only the asynchronous hook takes the argument; `step` is as it was."""

    async def reset_async(self, size: int = 1) -> Seen:
        return tells(size=size)


class PositionalOnly(Plain):
    def reset(self, size: int = 1, /, colour: str = "red") -> Seen:
        return tells(size=size, colour=colour)

    def step(self, action: Do, speed: int = 1, /, *, loud: bool = False) -> Seen:
        return tells(speed=speed, loud=loud)


class Starred(Plain):
    def reset(*self: Any, size: int = 1) -> Seen:
        return tells(size=size)

    def step(self, *actions: Do, speed: int = 1) -> Seen:
        return tells(speed=speed, count=len(actions))


class Wrapped(Plain):
    """A decorator that hides nothing, as `functools.wraps` promises."""

    @functools.wraps(Named.reset)
    def reset(self, *args: Any, **kwargs: Any) -> Seen:  # type: ignore[override]
        return Named.reset(self, *args, **kwargs)  # type: ignore[arg-type]


class Partial(Plain):
    def _begin(self, level: int, size: int = 1, colour: str = "red") -> Seen:
        return tells(level=level, size=size, colour=colour)

    reset = functools.partialmethod(_begin, 3, colour="blue")


class Static(Plain):
    @staticmethod
    def reset(size: int = 1) -> Seen:
        return tells(size=size)

    @classmethod
    def step(cls, action: Do, speed: int = 1) -> Seen:
        return tells(name=cls.__name__, speed=speed)


class Unlucky(Plain):
    """Arguments that share a name with something inside the library."""

    def reset(self, function: str = "", command: str = "") -> Seen:
        return tells(function=function, command=command)


CASES: list[tuple[type, Command, dict[str, Any], tuple[str, ...]]] = [
    (Plain, Reset({"size": 2}), {}, ("size",)),
    (Plain, Step({}, {"speed": 2}), {}, ("speed",)),
    (Plain, Reset({"seed": 1, "episode_id": "e"}), {}, ("seed", "episode_id")),
    (Plain, Reset({"seed": None, "episode_id": None}), {}, ()),
    (Plain, Step({}, {"timeout_s": None}), {}, ()),
    (Named, Reset(), {"size": 1, "colour": "red"}, ()),
    (Named, Reset({"colour": "blue"}), {"size": 1, "colour": "blue"}, ()),
    (Named, Reset({"size": None}), {"size": None, "colour": "red"}, ()),
    (Named, Step({}, {"loud": True, "louder": True}), {"speed": 1, "loud": True}, ("louder",)),
    (Anything, Reset({"seed": 1, "other": 2}), {"size": 1, "seed": 1, "other": 2}, ()),
    (Anything, Step({}, {"timeout_s": 3, "other": None}), {"timeout_s": 3, "other": None}, ()),
    (Coroutines, Reset({"size": 2, "seed": 1}), {"size": 2}, ("seed",)),
    (Coroutines, Step({}, {"speed": 2}), {"speed": 2}, ()),
    (Hooked, Reset({"size": 2}), {"size": 2}, ()),
    (Hooked, Step({}, {"size": 2}), {}, ("size",)),
    (PositionalOnly, Reset({"size": 2, "colour": ""}), {"size": 1, "colour": ""}, ("size",)),
    (PositionalOnly, Step({}, {"speed": 2, "loud": True}), {"speed": 1, "loud": True}, ("speed",)),
    (Starred, Reset({"size": 2, "self": 1}), {"size": 2}, ("self",)),
    (Starred, Step({}, {"speed": 2}), {"speed": 2, "count": 1}, ()),
    (Wrapped, Reset({"size": 2, "sized": 3}), {"size": 2, "colour": "red"}, ("sized",)),
    (Partial, Reset({"size": 2}), {"level": 3, "size": 2, "colour": "blue"}, ()),
    (Partial, Reset({"level": 9, "colour": ""}), {"level": 3, "size": 1, "colour": ""}, ("level",)),
    (Static, Reset({"size": 2}), {"size": 2}, ()),
    (Static, Step({}, {"speed": 2}), {"name": "Static", "speed": 2}, ()),
    (Unlucky, Reset({"function": "f", "command": "c"}), {"function": "f", "command": "c"}, ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "command", "received", "ignored"),
    CASES,
    ids=[f"{cls.__name__} {type(command).__name__}" for cls, command, _, _ in CASES],
)
async def test_an_argument_is_passed_where_it_is_taken_and_named_where_it_is_not(
    open_session: Open,
    cls: type,
    command: Command,
    received: dict[str, Any],
    ignored: tuple[str, ...],
) -> None:
    session = await open_session(cls)
    transition = await session.handle(command)
    assert (transition.observation.arguments, transition.ignored) == (received, ignored)


async def test_strictness_refuses_before_anything_is_done(open_session: Open) -> None:
    session = await open_session(Named)
    await session.handle(Step({}))
    with pytest.raises(InvalidArgumentError) as caught:
        await session.handle(Reset({"size": 2, "colur": "blue", "zzz": 1, "seed": 1}), strict=True)
    error = caught.value
    assert outward(error).code == "VALIDATION_ERROR"
    assert error.details() == {"arguments": ["colur", "zzz"], "accepted": ["size", "colour"]}
    assert str(error) == (
        "reset does not take 'colur' (did you mean 'colour'?), 'zzz'; it takes size, colour"
    )
    assert session.step_count == 1, "the episode goes on"


@pytest.mark.parametrize(("cls", "method"), [(Coroutines, "reset"), (Hooked, "reset")])
async def test_strictness_speaks_of_the_method_that_the_caller_knows(
    open_session: Open, cls: type, method: str
) -> None:
    session = await open_session(cls)
    with pytest.raises(InvalidArgumentError) as caught:
        await session.handle(Reset({"sise": 2}), strict=True)
    assert str(caught.value) == "reset does not take 'sise' (did you mean 'size'?); it takes size"
    with pytest.raises(InvalidArgumentError, match=r"^step does not take 'size'"):
        await session.handle(Step({}, {"size": 2}), strict=True)


@pytest.mark.parametrize("name", ["seed", "episode_id", "timeout_s"])
async def test_what_every_caller_passes_is_no_mistake_but_is_reported(
    open_session: Open, name: str
) -> None:
    session = await open_session(Plain)
    assert (await session.handle(Reset({name: 1}), strict=True)).ignored == (name,)
    stepped = await session.handle(Step({}, {name: 1}), strict=True)
    assert stepped.ignored == (() if name == "timeout_s" else (name,)), "the session keeps the time"


async def test_the_log_says_it_once_a_class_and_is_not_filled_by_strangers(
    open_session: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_REPORTED", set())
    monkeypatch.setattr(runner, "MAX_REPORTED", 3)
    with caplog.at_level(logging.WARNING, "openenv"):
        for _ in range(2):
            session = await open_session(Plain)
            for number in range(5):
                await session.handle(Reset({f"made_up_{number}": 1}))
    assert len(caplog.records) == 3
    assert "Plain.reset does not take 'made_up_0'" in caplog.text


async def test_a_missing_argument_is_named(open_session: Open) -> None:
    class Demanding(Plain):
        def reset(self, task: str) -> Seen:  # type: ignore[override]
            return tells(task=task)

    session = await open_session(Demanding)
    with pytest.raises(TypeError, match="'task'"):
        await session.handle(Reset())
    assert (await session.handle(Reset({"task": "t"}))).observation.arguments == {"task": "t"}


NAMES = ("a", "b", "c", "seed", "episode_id")


@st.composite
def signatures(draw: st.DrawFn) -> str:
    """Any parameters with defaults: ``self, a=0, /, b=0, *, c=0, **more``."""
    names = draw(st.permutations(NAMES))
    cuts = sorted(draw(st.tuples(*[st.integers(0, len(NAMES))] * 3)))
    only, both, keyword = (
        [f"{name}=0" for name in names[begin:end]]
        for begin, end in zip([0, *cuts[:2]], cuts, strict=True)
    )
    parts = ["self", *only, *(["/"] if only else []), *both, *(["*", *keyword] if keyword else [])]
    return ", ".join(parts + (["**more"] if draw(st.booleans()) else []))


@given(
    signatures(),
    st.dictionaries(st.sampled_from((*NAMES, "d", "more")), st.none() | st.just(1)),
)
def test_no_argument_is_lost_and_none_is_passed_that_would_be_refused(
    signature: str, arguments: dict[str, Any]
) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def reset({signature}): return {{**locals(), **locals().get('more', {{}})}}", namespace)
    cls = type("Generated", (Plain,), {"reset": namespace["reset"]})
    passed, ignored = plan_for(cls).reset.split(arguments, strict=False)
    received = cls().reset(**passed)
    assert received | passed == received, "what is passed arrives"
    dropped = {name: arguments[name] for name in arguments.keys() - passed.keys() - set(ignored)}
    assert dropped.keys() <= {"seed", "episode_id"} and not any(dropped.values())
    assert not passed.keys() & set(ignored)


# ------------------------------------------------------------------ what is read off a class


@pytest.mark.parametrize(
    ("cls", "is_async"),
    [(Counter, False), (AsyncCounter, True), (HookCounter, True), (Hooked, True), (Plain, False)],
)
def test_an_environment_is_asynchronous_if_it_awaits(cls: type, is_async: bool) -> None:
    assert plan_for(cls).is_async is is_async


def test_a_class_without_the_methods_is_told_what_is_missing() -> None:
    class Half:
        def reset(self) -> Seen:
            return tells()

    with pytest.raises(InvalidReturnError, match=r"Half is no environment.*'step'"):
        plan_for(Half)


def test_models_are_read_off_the_base_or_the_annotations_or_asked_for() -> None:
    class Annotated(Plain):
        def step(self, action: Do) -> StepResult[Seen]:  # type: ignore[override]
            return StepResult(observation=tells())

    class Vague(Plain):
        def step(self, action):  # type: ignore[no-untyped-def]
            return tells()

    assert models_of(Counter) == (Do, Seen, Progress)
    assert models_of(Plain) == models_of(Annotated) == (Do, Seen, None)
    with pytest.raises(TypeError, match="which models does Vague speak"):
        EnvironmentSpec.of(Vague)


def test_the_class_is_found_behind_a_factory_that_names_it() -> None:
    class Nested:
        def make(self) -> AsyncCounter:
            return AsyncCounter()

    async def make() -> Counter:
        return Counter()

    assert class_made_by(functools.partial(functools.partial(Counter))) is Counter
    assert class_made_by(Nested().make) is AsyncCounter
    assert class_made_by(make) is Counter
    assert class_made_by(lambda: Counter()) is None
    assert EnvironmentSpec.of(functools.partial(Counter)).name == "Counter"


@pytest.mark.parametrize("value", [None, 3, {"text": "a dict"}, (tells(), 1.0, False, {})])
def test_what_is_no_observation_is_named(value: Any) -> None:
    with pytest.raises(InvalidReturnError, match=f"step returned {type(value).__name__}") as caught:
        normalise(value, "step")
    assert ("`return` missing" in str(caught.value)) is (value is None)


@given(
    st.builds(Seen, reward=st.none() | st.floats(allow_nan=False), done=..., truncated=...),
    st.none() | st.floats(allow_nan=False),
    st.booleans(),
    st.booleans(),
)
def test_a_result_around_an_observation_adds_to_it(
    seen: Seen, reward: float | None, done: bool, truncated: bool
) -> None:
    outer = StepResult(observation=seen, reward=reward, done=done, truncated=truncated)
    transition = normalise(outer, "step")
    assert transition.reward == (seen.reward if reward is None else reward)
    assert transition.truncated == (seen.truncated or truncated)
    assert transition.done == (seen.done or done or transition.truncated)
