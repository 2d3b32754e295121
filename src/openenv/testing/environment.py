"""`check_environment`: check that an environment keeps the contract of `Environment`.

Each sentence of the contract is a constant in this module. The sentence is the message of the check
that enforces it, and the text on the page that explains it.

Every check gets its own session, opened and closed by `_check_promise`, so that a check that fails
halfway does not affect the next. An exception in a check becomes the finding for its promise; only
an environment that cannot be created at all raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Union

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from openenv._internal.logs import silence
from openenv._internal.models import ACTION_TYPE, like_fields, named_kinds, reader_of
from openenv.client.background import run
from openenv.errors import NotSupported, Refused
from openenv.execution.commands import GetState, Render, Reset, Restore, Step, TakeSnapshot
from openenv.execution.executors import Executor, ExecutorCall, Executors
from openenv.execution.manager import SessionManager
from openenv.execution.process import Workers
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.threads import LoopDispatcher, WorkerThread
from openenv.protocol.messages import RenderReply, Transition
from openenv.protocol.renderings import as_file
from openenv.protocol.v0.codec import observation_payload
from openenv.reward import RewardSpec, adds_up
from openenv.server.workers import spec_source
from openenv.testing.actions import minimal_action

__all__ = ["PROMISES", "CheckFailed", "CheckReport", "PromiseResult", "check_environment"]

RESET_BEGINS = "reset returns an Observation that is not done."
STEP_RETURNS = "step returns an Observation; its reward is a finite number or None."
STATE_BEFORE_RESET = "state can be read before the first reset, and reading it changes nothing."
STEPS_ARE_COUNTED = "state.step_count is 0 after reset and grows with every step."
EPISODE_ID_IS_KEPT = "An episode_id that reset takes is the state's episode_id."
VALUES_ROUND_TRIP = "Every observation, action and state survives a round trip through JSON."
KINDS_ARE_TOLD_APART = (
    "A value of one of several models is read as that model: no other model takes the same fields, "
    "or a constant field tells them apart."
)
SEED_IS_HONOURED = (
    "The same seed and actions give the same episode, in one instance and in another; a seed is "
    "not accepted and then ignored."
)
ARGUMENTS_ARE_TAKEN = "Every argument that reset declares can be passed by name, as JSON."
STEP_BEFORE_RESET = "A step before reset raises or is served; reset works afterwards."
STEP_AFTER_DONE = "A step after done raises or returns done again; it begins no new episode."
RESET_ABANDONS = "reset in the middle of an episode begins a new one."
INSTANCES_ARE_APART = "Instances side by side do not disturb each other."
ANY_THREAD_WILL_DO = (
    "If the class declares SUPPORTS_ANY_THREAD, an episode is the same if each call comes from "
    "another thread."
)
SNAPSHOT_RESTORES = (
    "If there is a snapshot method, it changes nothing, and restore gives the same state and the "
    "same continuation, in this instance and in another."
)
RENDER_ONLY_SHOWS = (
    "If there is a render method, it changes nothing, and returns text, SVG, a Picture or an array "
    "of pixels; it raises Refused or NotSupported if there is nothing to show."
)
REWARD_KEEPS_ITS_SPEC = (
    "If the class declares a REWARD, every reward keeps to it: it is in the range, its components "
    "are declared ones, if any are, and a terminal reward comes only at the end."
)
COMPONENTS_ADD_UP = (
    "If a reward has components, they add up to it; if it is None, a given reason is text."
)
CLOSE_IS_QUIET = "close does not raise."

QUICK_CALL_S = 0.005
MIN_SCATTERED_S = 5.0
ANY_THREAD_ADVICE = (
    "declare SUPPORTS_ANY_THREAD = True, unless the environment keeps something that is bound to "
    "a thread. {steps} steps, each called from another thread, went well. Without the declaration "
    "each session has a thread of its own, and a quick step costs about three times the CPU."
)

Policy = Callable[[Any], Any]


@dataclass(frozen=True)
class PromiseResult:
    """The result of a promise's check: kept (True), broken (False), or not applicable (None)."""

    promise: str
    kept: bool | None
    detail: str = ""

    def __str__(self) -> str:
        mark = {True: "kept", False: "BROKEN", None: "skipped"}[self.kept]
        return f"{mark}: {self.promise}" + (f"\n    {self.detail}" if self.detail else "")


@dataclass(frozen=True)
class CheckReport:
    """All findings on an environment or a provider.

    Attributes:
        name: The name of the environment or provider.
        findings: The result for each promise.
        advice: What would make it better, although no promise is broken.
    """

    name: str
    findings: list[PromiseResult]
    advice: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[PromiseResult]:
        """The promises that were not kept."""
        return [finding for finding in self.findings if finding.kept is False]

    def __str__(self) -> str:
        advice = (f"  advice: {line}" for line in self.advice)
        return "\n".join([f"{self.name}:", *(f"  {one}" for one in self.findings), *advice])


class CheckFailed(AssertionError):
    """An error for a broken contract; `report` has all findings."""

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        lines = "\n".join(f"  {finding}" for finding in report.broken)
        super().__init__(f"{report.name} breaks the contract:\n{lines}")


@dataclass
class _EnvironmentSubject:
    """The environment under test, and the actions to take."""

    spec: EnvironmentSpec
    actions: Sequence[Any] | Policy | None
    reset_arguments: dict[str, Any]
    max_steps: int
    findings: list[PromiseResult] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    manager: SessionManager | None = None  # set if worker processes hold the environments

    def policy(self) -> Policy:
        """Return a new policy; every policy takes the same actions."""
        if callable(self.actions):
            return self.actions
        given = cycle(self.actions or [minimal_action(self.spec.action_cls)])
        return lambda observation: next(given)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Session]:
        if self.manager is not None:
            session = await self.manager.create()
        else:
            session = Session(self.spec)
            await session.open()
        try:
            yield session
        finally:
            await session.close()

    async def reset(self, session: Session, **arguments: Any) -> Transition:
        merged = {**self.reset_arguments, **arguments}
        transition: Transition = await session.handle(Reset(merged))
        return transition

    async def play(self, session: Session, **arguments: Any) -> list[Transition]:
        """Play an episode to the end, or for `max_steps` steps."""
        (episode,) = await self.play_together([session], **arguments)
        return episode

    async def play_together(
        self, sessions: Sequence[Session], **arguments: Any
    ) -> list[list[Transition]]:
        acts = [self.policy() for _ in sessions]
        first = await asyncio.gather(*(self.reset(session, **arguments) for session in sessions))
        episodes = [[transition] for transition in first]
        while playing := [i for i, episode in enumerate(episodes) if self.goes_on(episode)]:
            actions = [acts[i](episodes[i][-1].observation) for i in playing]
            steps = [sessions[i].handle(Step(a)) for i, a in zip(playing, actions, strict=True)]
            for i, transition in zip(playing, await asyncio.gather(*steps), strict=True):
                episodes[i].append(transition)
        return episodes

    def goes_on(self, episode: Sequence[Transition]) -> bool:
        return not episode[-1].done and len(episode) <= self.max_steps

    async def step_count(self, session: Session) -> Any:
        return (await self.state(session)).get("step_count")

    async def state(self, session: Session) -> dict[str, Any]:
        reply = await session.handle(GetState())
        state: dict[str, Any] = from_json(to_json(reply.state))
        return state

    def takes(self, name: str) -> bool:
        plan = self.spec.plan
        return plan is not None and (plan.reset.takes_any or name in plan.reset.accepted)

    @property
    def seed(self) -> dict[str, int]:
        """The reset arguments that make episodes equal; empty if reset takes no seed."""
        return {"seed": 7} if self.takes("seed") else {}


class PromiseSkipped(Exception):
    """Raised by a check that does not apply; the message says why."""


def check_environment(
    factory: Callable[[], Any],
    *,
    actions: Iterable[Any] | Policy | None = None,
    action_cls: Any = None,
    observation_cls: Any = None,
    reset_arguments: dict[str, Any] | None = None,
    max_steps: int = 50,
    skip: Sequence[str] = (),
    workers: int = 0,
) -> CheckReport:
    """Check that an environment keeps the contract of `openenv.environment.Environment`.

    Args:
        factory: The environment class, or a callable that returns an instance.
        actions: Actions to take in turn, or a deterministic function from observation to action.
            By default a minimal action, made from the action model.
        action_cls: The action model, if the class does not declare it.
        observation_cls: The observation model, if the class does not declare it.
        reset_arguments: Arguments to pass to every reset.
        max_steps: Maximum number of steps in an episode.
        skip: Promises (constants of this module) to skip.
        workers: Number of worker processes that run the environment, like ``openenv serve
            --workers``; `factory` must be importable there. 0 runs it in this process.

    Returns:
        A report of all findings.

    Raises:
        CheckFailed: A promise is broken; the error lists all broken promises.
        OpenEnvError: The environment cannot be created at all.
        TypeError: `workers` is set, but worker processes cannot import the environment.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import check_environment
        >>> report = check_environment(EchoEnvironment)
        >>> report.broken
        []
    """
    spec = EnvironmentSpec.of(factory, action_cls, observation_cls)
    listed = actions if actions is None or callable(actions) else list(actions)
    subject = _EnvironmentSubject(spec, listed, reset_arguments or {}, max_steps)
    with silence("openenv.execution"):  # checks provoke errors
        return run(_check_in_workers(subject, frozenset(skip), workers))


async def _check_in_workers(
    subject: _EnvironmentSubject, skip: frozenset[str], workers: int
) -> CheckReport:
    if not workers:
        return await _check(subject, skip)
    subject.manager = SessionManager(subject.spec)
    subject.manager.run_on(Workers(subject.spec, workers, spec_source(subject.spec)))
    try:
        return await _check(subject, skip)
    finally:
        await subject.manager.aclose()


async def _check(subject: _EnvironmentSubject, skip: frozenset[str]) -> CheckReport:
    async with subject.open():  # raises if the environment cannot be created at all
        pass
    for promise, check in _CHECKS.items():
        subject.findings.append(
            PromiseResult(promise, None, "left out by the caller")
            if promise in skip
            else await _check_promise(promise, check, subject)
        )
    report = CheckReport(subject.spec.name, subject.findings, subject.advice)
    if report.broken:
        raise CheckFailed(report)
    return report


async def _check_promise(
    promise: str, check: _Check, subject: _EnvironmentSubject
) -> PromiseResult:
    async with subject.open() as session:
        try:
            await check(subject, session)
        except PromiseSkipped as reason:
            return PromiseResult(promise, None, str(reason))
        except Exception as error:  # every exception is a finding
            return PromiseResult(promise, False, f"{type(error).__name__}: {error}")
    return PromiseResult(promise, True)


_Check = Callable[[_EnvironmentSubject, Session], Awaitable[None]]
_CHECKS: dict[str, _Check] = {}


def _checks(promise: str) -> Callable[[_Check], _Check]:
    assert promise not in _CHECKS, promise
    return lambda check: _CHECKS.setdefault(promise, check)


@_checks(RESET_BEGINS)
async def _reset_begins(subject: _EnvironmentSubject, session: Session) -> None:
    first = await subject.reset(session)
    _expect(not first.done, "reset returned done=True")
    _expect_reward(first)


@_checks(STEP_RETURNS)
async def _step_returns(subject: _EnvironmentSubject, session: Session) -> None:
    for transition in (await subject.play(session))[1:]:
        _expect_reward(transition)


@_checks(STATE_BEFORE_RESET)
async def _state_before_reset(subject: _EnvironmentSubject, session: Session) -> None:
    before = await subject.state(session)
    after = await subject.state(session)
    _expect(before == after, f"two readings differ: {before} and {after}")


@_checks(STEPS_ARE_COUNTED)
async def _steps_are_counted(subject: _EnvironmentSubject, session: Session) -> None:
    act = subject.policy()
    transition = await subject.reset(session)
    count = await _expect_no_steps(subject, session)
    for _ in range(min(subject.max_steps, 5)):
        if transition.done:
            break
        transition = await session.handle(Step(act(transition.observation)))
        before, count = count, await subject.step_count(session)
        _expect(count is not None and count > before, f"step_count went from {before} to {count}")


@_checks(EPISODE_ID_IS_KEPT)
async def _episode_id_is_kept(subject: _EnvironmentSubject, session: Session) -> None:
    if not subject.takes("episode_id"):
        raise PromiseSkipped("reset takes no episode_id")
    await subject.reset(session, episode_id="episode-of-the-check")
    kept = (await subject.state(session)).get("episode_id")
    _expect(kept == "episode-of-the-check", f"state.episode_id is {kept!r}")


@_checks(VALUES_ROUND_TRIP)
async def _values_round_trip(subject: _EnvironmentSubject, session: Session) -> None:
    episode = await subject.play(session)
    for transition in episode:
        observation = transition.observation
        payload = from_json(observation_payload(transition))
        if isinstance(observation, BaseModel):
            fields = from_json(to_json(payload["observation"]))
            fields |= {"done": transition.done, "reward": payload["reward"]}
            again = reader_of(type(observation)).read(fields)
            transition.observation = again
            _expect_same(payload, from_json(observation_payload(transition)), "observation")
    action = subject.policy()(episode[0].observation)
    sent = from_json(to_json(action))
    kind = named_kinds(subject.spec.action_cls).get(type(action))
    received = subject.spec.decode_action({ACTION_TYPE: kind, **sent} if kind else sent)
    _expect_same(sent, from_json(to_json(received)), "action")
    state = await subject.state(session)
    again = reader_of(subject.spec.state_cls).read(state)
    _expect_same(state, {**state, **from_json(to_json(again))}, "state")


@_checks(KINDS_ARE_TOLD_APART)
async def _kinds_are_told_apart(subject: _EnvironmentSubject, session: Session) -> None:
    spec = subject.spec
    shown = type((await subject.reset(session)).observation)
    alike = [*like_fields(spec.action_cls), *like_fields(Union[spec.observation_cls, shown])]  # noqa: UP007 - known only now
    _expect(
        not alike,
        f"nothing tells apart what takes the same fields: {'; '.join(alike)}. Give each model a "
        "field such as kind: Literal['a'] = 'a'",
    )
    if spec.named_kinds:
        raise PromiseSkipped(
            f"the actions {', '.join(spec.named_kinds)} take the same fields. Clients of version 1 "
            f"say which is meant; others have to, by {ACTION_TYPE!r}, or are refused"
        )


@_checks(SEED_IS_HONOURED)
async def _seed_is_honoured(subject: _EnvironmentSubject, session: Session) -> None:
    if not subject.takes("seed"):
        raise PromiseSkipped("reset takes no seed")
    async with subject.open() as other:
        for seed in (0, 1, 2**31 - 1):
            reference = _trace(await subject.play(session, seed=seed))
            for again in (session, other, session):
                episode = _trace(await subject.play(again, seed=seed))
                _expect(
                    reference == episode,
                    f"seed {seed} gave two different episodes: "
                    f"{_describe_difference(reference, episode)}",
                )


@_checks(ARGUMENTS_ARE_TAKEN)
async def _arguments_are_taken(subject: _EnvironmentSubject, session: Session) -> None:
    assert subject.spec.environment_class is not None and subject.spec.plan is not None
    method = subject.spec.plan.reset
    signature = inspect.signature(getattr(subject.spec.environment_class, method.name))
    for name in method.accepted:
        default = signature.parameters[name].default
        if default is not inspect.Parameter.empty and name not in subject.reset_arguments:
            await subject.reset(session, **{name: from_json(to_json(default))})


@_checks(STEP_BEFORE_RESET)
async def _step_before_reset(subject: _EnvironmentSubject, session: Session) -> None:
    # There is no observation yet, so take the first action of an episode in another session.
    async with subject.open() as helper:
        action = subject.policy()((await subject.reset(helper)).observation)
    with contextlib.suppress(Exception):  # the step may raise
        await session.handle(Step(action))
    first = await subject.reset(session)
    _expect(not first.done, "reset after a step before reset returned done=True")
    await _expect_no_steps(subject, session)


@_checks(STEP_AFTER_DONE)
async def _step_after_done(subject: _EnvironmentSubject, session: Session) -> None:
    episode = await subject.play(session)
    if not episode[-1].done:
        raise PromiseSkipped(f"no episode ended within {subject.max_steps} steps")
    action = subject.policy()(episode[-2].observation)
    transition = None
    with contextlib.suppress(Exception):  # the step may raise
        transition = await session.handle(Step(action))
    _expect(transition is None or transition.done, "a step after done returned done=False")
    await _reset_begins(subject, session)


@_checks(RESET_ABANDONS)
async def _reset_abandons(subject: _EnvironmentSubject, session: Session) -> None:
    first = await subject.reset(session)
    await session.handle(Step(subject.policy()(first.observation)))
    await _reset_begins(subject, session)
    await _expect_no_steps(subject, session, "the second reset")


@_checks(INSTANCES_ARE_APART)
async def _instances_are_apart(subject: _EnvironmentSubject, session: Session) -> None:
    if not subject.spec.supports_concurrency:
        raise PromiseSkipped("the class does not declare SUPPORTS_CONCURRENT_SESSIONS")
    seed = subject.seed
    alone = _trace(await subject.play(session, **seed))
    async with contextlib.AsyncExitStack() as stack:
        others = [await stack.enter_async_context(subject.open()) for _ in range(3)]
        together = await subject.play_together(others, **seed)
    if not seed:
        return  # episodes may differ without a seed; playing all of them is enough
    for episode in together:
        _expect(_trace(episode) == alone, "an episode differs from the same one played alone")


class _ThreadForEachCall(Executor):
    """Runs each call on another thread; they live on, since ended threads' ids are used again."""

    def __init__(self) -> None:
        self._dispatcher = LoopDispatcher(asyncio.get_running_loop())
        self._workers: list[WorkerThread] = []

    def submit(self, call: ExecutorCall) -> None:
        worker = WorkerThread("openenv-check")
        self._workers.append(worker)
        self._dispatcher.submit(call, worker)

    def stop(self) -> None:
        """End the threads."""
        for worker in self._workers:
            worker.stop()


class _OneExecutor(Executors):
    """Gives every session the same executor."""

    def __init__(self, spec: EnvironmentSpec, executor: Executor) -> None:
        super().__init__(spec)
        self._executor = executor

    def for_new(self) -> Executor:
        return self._executor


@_checks(ANY_THREAD_WILL_DO)
async def _any_thread_will_do(subject: _EnvironmentSubject, session: Session) -> None:
    spec = subject.spec
    if subject.manager is not None:
        raise PromiseSkipped("worker processes choose the threads")
    if (spec.plan is not None and spec.plan.is_async) or spec.never_blocks:
        raise PromiseSkipped("the environment is called on the event loop")
    if spec.needs_one_thread:
        raise PromiseSkipped("the class declares REQUIRES_SINGLE_THREAD_EXECUTOR")
    began = time.perf_counter()
    episode = await subject.play(session, **subject.seed)
    seconds = time.perf_counter() - began
    try:
        scattered = await _play_scattered(subject, max(MIN_SCATTERED_S, 20 * seconds))
        if subject.seed:
            alone, spread = _trace(episode), _trace(scattered)
            _expect(alone == spread, _describe_difference(alone, spread))
    except Exception as error:
        if spec.supports_any_thread:
            raise
        why = f"{type(error).__name__}: {error}"
        raise PromiseSkipped(f"its calls need one thread: {why}") from None
    if not spec.supports_any_thread:
        if seconds / len(episode) < QUICK_CALL_S and spec.supports_concurrency:
            subject.advice.append(ANY_THREAD_ADVICE.format(steps=len(scattered) - 1))
        raise PromiseSkipped("the class does not declare SUPPORTS_ANY_THREAD")


async def _play_scattered(subject: _EnvironmentSubject, timeout_s: float) -> list[Transition]:
    """Play an episode in which each call comes from another thread.

    Raises:
        TimeoutError: A call did not return in time, as if it waited for another thread. Its session
            is left behind, since it could not be closed.
    """
    threads = _ThreadForEachCall()
    session = Session(subject.spec, executors=_OneExecutor(subject.spec, threads))

    async def play() -> list[Transition]:
        await session.open()
        try:
            return await subject.play(session, **subject.seed)
        finally:
            await session.close()

    playing = asyncio.ensure_future(play())
    try:
        await asyncio.wait([playing], timeout=timeout_s)
        if not playing.done():
            playing.cancel()
            raise TimeoutError(f"a call from another thread did not return within {timeout_s:g} s")
        return playing.result()
    finally:
        threads.stop()


@_checks(SNAPSHOT_RESTORES)
async def _snapshot_restores(subject: _EnvironmentSubject, session: Session) -> None:
    cls = subject.spec.environment_class
    if not all(callable(getattr(cls, name, None)) for name in ("snapshot", "restore")):
        raise PromiseSkipped("there is no snapshot, or no restore")
    seed = subject.seed
    start = await subject.reset(session, **seed)
    act = subject.policy()
    begun = start if start.done else await session.handle(Step(act(start.observation)))
    before = await subject.state(session)
    try:
        stored = (await session.handle(TakeSnapshot())).snapshot
    except NotSupported as reason:
        raise PromiseSkipped(str(reason)) from None
    _expect_same(before, await subject.state(session), "state")
    here = await _play_on(subject, session, begun, act)
    async with subject.open() as other:
        for again in (session, other):
            # Restart the policy, so that listed actions continue as they did before.
            act = subject.policy()
            act(start.observation)
            reply = await again.handle(Restore({"snapshot": stored}))
            _expect_same(before, from_json(to_json(reply.state)), "state")
            there = await _play_on(subject, again, begun, act)
            _expect(here == there, f"restore led elsewhere: {_describe_difference(here, there)}")


async def _play_on(
    subject: _EnvironmentSubject, session: Session, begun: Transition, act: Policy
) -> list[Any]:
    """Continue an episode to the end, or for `max_steps` steps."""
    episode = [begun]
    while subject.goes_on(episode):
        episode.append(await session.handle(Step(act(episode[-1].observation))))
    return _trace(episode)


RENDERED_STEPS = 5  # besides the last step, because rendering in a browser may take a second


@_checks(RENDER_ONLY_SHOWS)
async def _render_only_shows(subject: _EnvironmentSubject, session: Session) -> None:
    if not callable(getattr(subject.spec.environment_class, "render", None)):
        raise PromiseSkipped("there is no render")
    await _render_unchanged(subject, session)  # before the first reset
    seed = subject.seed
    act = subject.policy()
    episode = [await subject.reset(session, **seed)]
    drawn = [await _render_unchanged(subject, session)]
    while subject.goes_on(episode):
        episode.append(await session.handle(Step(act(episode[-1].observation))))
        if len(drawn) <= RENDERED_STEPS or episode[-1].done:
            drawn.append(await _render_unchanged(subject, session))
    if not any(drawn):
        raise PromiseSkipped("there was nothing to show")
    if not seed:
        return  # episodes may differ without a seed; an unchanged state is enough
    async with subject.open() as other:
        shown, unseen = _trace(episode), _trace(await subject.play(other, **seed))
    _expect(
        shown == unseen, f"to draw an episode changed it: {_describe_difference(unseen, shown)}"
    )


async def _render_unchanged(subject: _EnvironmentSubject, session: Session) -> bool:
    """Render and check that the state is unchanged; return whether anything was shown."""
    before, is_drawn = await subject.state(session), False
    with contextlib.suppress(Refused, NotSupported):
        await session.handle(Render(), encode=_to_file)
        is_drawn = True
    _expect_same(before, await subject.state(session), "state")
    return is_drawn


def _to_file(reply: RenderReply) -> tuple[str, bytes]:  # no lambda, because workers unpickle it
    return as_file(reply.rendering)


@_checks(COMPONENTS_ADD_UP)
async def _components_add_up(subject: _EnvironmentSubject, session: Session) -> None:
    told = False
    for transition in (await subject.play(session))[1:]:
        info = transition.reward_info or {}
        told = told or not info.keys().isdisjoint(("components", "unscored"))
        _expect_explained(transition.reward, info)
    if not told:
        raise PromiseSkipped("no reward had components, and none was missing")


def _expect_explained(reward: float | None, info: dict[str, Any]) -> None:
    components, unscored = info.get("components", {}), info.get("unscored")
    if reward is None:
        _expect(not components, f"the reward is None and has components {components}")
        _expect(unscored is None or isinstance(unscored, str), f"the reason is {unscored!r:.200}")
        return
    _expect(unscored is None, f"the reward is {reward}, and could not be scored: {unscored}")
    if components:
        _expect(
            adds_up(reward, components),
            f"the components {components} add up to {math.fsum(components.values()):g}, and the "
            f"reward is {reward:g}",
        )


@_checks(REWARD_KEEPS_ITS_SPEC)
async def _reward_keeps_its_spec(subject: _EnvironmentSubject, session: Session) -> None:
    episode = await subject.play(session)
    told = (episode[0].reward_info or {}).get("spec")
    if told is None:
        raise PromiseSkipped("the class declares no REWARD")
    spec = RewardSpec.from_data(told)
    for transition in episode[1:]:
        reward, parts = transition.reward, (transition.reward_info or {}).get("components", {})
        unknown = sorted(parts.keys() - set(spec.components)) if spec.components else []
        _expect(not unknown, f"components {unknown} are not among those declared")
        if reward is None:
            continue
        if spec.range is not None:
            low, high = spec.range
            _expect(low <= reward <= high, f"reward {reward} is not from {low} to {high}")
        if spec.kind == "terminal" and not transition.done:
            _expect(reward == 0, f"reward {reward} before the end, of kind terminal")


@_checks(CLOSE_IS_QUIET)
async def _close_is_quiet(subject: _EnvironmentSubject, session: Session) -> None:
    await subject.reset(session)
    await session.close()
    if session.close_error is not None:
        raise session.close_error


PROMISES = tuple(_CHECKS)


def _trace(episode: list[Transition]) -> list[Any]:
    """Return the parts of an episode that must be equal in two runs: all but metadata."""
    trace = []
    for transition in episode:
        payload = from_json(observation_payload(transition))
        payload.pop("metadata", None)
        if isinstance(payload["observation"], dict):
            payload["observation"].pop("metadata", None)
        trace.append(payload)
    return trace


def _describe_difference(one: list[Any], other: list[Any]) -> str:
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return f"they part at step {step}, {a!r:.300} and {b!r:.300}"
    return f"of {len(one) - 1} and {len(other) - 1} steps"


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)


async def _expect_no_steps(
    subject: _EnvironmentSubject, session: Session, after: str = "reset"
) -> int:
    count = await subject.step_count(session)
    _expect(count == 0, f"step_count is {count} after {after}")
    return 0


def _expect_same(sent: Any, received: Any, what: str) -> None:
    _expect(sent == received, f"the {what} was {sent!r:.300} and came back as {received!r:.300}")


def _expect_reward(transition: Transition) -> None:
    reward = transition.reward
    if reward is not None:
        _expect(math.isfinite(reward), f"reward is {reward}")
