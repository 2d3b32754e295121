"""One environment instance, and the only code that calls it.

A runner lives where its environment lives: in this process, on the thread that its executor
chooses, or in a worker process.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pydantic import BaseModel, ValidationError

from openenv._internal.generics import once_per_class
from openenv._internal.models import ACTION_TYPE, named_kinds
from openenv.environment import Environment
from openenv.errors import EnvironmentFactoryError, InvalidReturnError, NotSupported
from openenv.events import Event, EventQueue
from openenv.execution.commands import (
    CallMethod,
    CloseEnvironment,
    Command,
    Encode,
    GetState,
    GetTransition,
    GetView,
    OtherCommand,
    Render,
    Reset,
    Restore,
    Step,
    TakeSnapshot,
)
from openenv.execution.recorded import Recording
from openenv.execution.spec import (
    CALL_TOOL,
    CallPlan,
    EnvironmentSpec,
    Method,
    factory_name,
    normalise,
)
from openenv.execution.tasks import (
    CallTaskMethod,
    TaskSupport,
    call_task_method,
    names_task,
    reset_to_own_task,
    reset_to_task,
    resolve_reset,
)
from openenv.execution.threads import contain
from openenv.protocol.messages import RenderReply, SnapshotReply, StateReply, Transition
from openenv.protocol.renderings import RENDER, checked_rendering
from openenv.protocol.v1.codec import snapshot_bytes
from openenv.protocol.values import to_wire_value
from openenv.protocol.views import MESSAGE_TO_ACTION, RENDER_WEB, WEB_ACTIONS, checked_view
from openenv.reward import REWARD_INFO, RewardSpec, Score
from openenv.rewards.delayed import EpisodeScorer, apply_score
from openenv.settings import ServerMode
from openenv.tools.functions import is_tool
from openenv.tools.types import CallToolAction

logger = logging.getLogger(__name__)


# Optional methods of an environment.
SNAPSHOT, RESTORE = "snapshot", "restore"
OPTIONAL = {TakeSnapshot: SNAPSHOT, Restore: RESTORE, Render: RENDER}
SPEC = "spec"  # key in `reward_info` for the meaning of all rewards
EVENTS = "events"  # key in the info of a transition for events of the environment itself


class EnvironmentRunner:
    """Constructs an environment and carries out commands, a single command at a time.

    Context variables that the environment sets are its own, even if it shares its thread.

    Attributes:
        environment: The environment; None before the construction and after the close.
    """

    __slots__ = (
        "_events",
        "_heard",
        "_kinds",
        "_left",
        "_read_action",
        "_scorer",
        "_shown",
        "context",
        "environment",
        "is_async",
        "plan",
        "spec",
        "steps_on_loop",
    )

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self.plan: CallPlan | None = None
        self.is_async = self.steps_on_loop = False
        self.environment: Any = None
        self._events: EventQueue | None = None
        self._heard: tuple[Event, ...] = ()
        self._shown: Transition | None = None
        self._left: Transition | None = None  # the last one of an episode that a restore replaced
        self._scorer: EpisodeScorer | None = None
        self._kinds = spec.observation_kinds
        self._read_action = spec.action_reader
        self.context = contextvars.copy_context()

    def construct(self) -> Coroutine[Any, Any, None] | None:
        """Construct the environment, or return a coroutine that does (if the factory is a coroutine
        function).

        Raises:
            EnvironmentFactoryError: The factory raised; the cause is chained.
        """
        try:
            made = self.context.run(self.spec.factory)
            if is_awaitable(type(made)):
                return self._construct_later(made)
            self._adopt(made)
        except BaseException as error:
            raise EnvironmentFactoryError(factory_name(self.spec.factory)) from contain(error)
        return None

    async def _construct_later(self, awaitable: Awaitable[Any]) -> None:
        try:
            self._adopt(await _contained(awaitable))
        except Exception as error:
            raise EnvironmentFactoryError(factory_name(self.spec.factory)) from error

    def _adopt(self, environment: Any) -> None:
        self.plan = self.spec.adopt(environment)
        self.is_async, self.steps_on_loop = self.plan.is_async, self.plan.step.is_async
        self.environment = environment
        if self.spec.has_tools:
            environment.mcp_serve_in(self.spec.mode)
        if isinstance(environment, Environment):
            self._listen_to(environment, self.plan)
        scorer = getattr(environment, "trajectory_scorer", None)
        if callable(scorer):
            credit = getattr(environment, "trajectory_credit", "terminal")
            self._scorer = EpisodeScorer(scorer, credit)

    def _listen_to(self, environment: Environment[Any, Any, Any], plan: CallPlan) -> None:
        """Connect an environment to its event queue, if it handles events."""
        heard = type(environment).on_event
        is_deaf, is_real = heard is Environment.on_event, self.spec.mode is ServerMode.PRODUCTION
        if (is_deaf and not is_real) or not has_event_queue(type(environment)):
            return
        queue = environment.events
        if is_real:
            queue.use_real_time()
        if is_deaf:
            return
        if inspect.iscoroutinefunction(heard) and not plan.step.is_async:
            raise InvalidReturnError(
                f"{type(environment).__name__}.on_event is a coroutine method, and step is none: "
                "both are called where the environment lives, so make them alike"
            )
        self._events = queue

    def is_light(self, command: Command) -> bool:
        """Return whether `command` may run on the event loop: a coroutine of an asynchronous
        environment, or its state.
        """
        plan = self.plan
        if plan is None or not self.is_async:
            return False
        if isinstance(command, Step):
            return plan.step.is_async
        if isinstance(command, Reset):
            return plan.reset.is_async
        if isinstance(command, CloseEnvironment):
            return plan.close.is_async
        if isinstance(command, CallMethod):
            return self._is_coroutine(command.method)
        if isinstance(command, TakeSnapshot | Restore | Render):
            return self._is_coroutine(OPTIONAL[type(command)])
        if isinstance(command, GetView):
            named = (RENDER_WEB, WEB_ACTIONS, MESSAGE_TO_ACTION)
            return all(self._optional(one) is None or self._is_coroutine(one) for one in named)
        return True

    def _is_coroutine(self, method: str) -> bool:
        return inspect.iscoroutinefunction(getattr(self.environment, method, None))

    def serve(self, command: Command, encode: Encode | None, strict: bool) -> Any:
        """Carry out `command` in `context`; return the reply, encoded if `encode` is given, or a
        coroutine that does.

        Raises:
            InvalidActionError: The action does not fit its model.
            InvalidArgumentError: With `strict`: the environment does not take an argument.
            MissingArgumentError: A required argument is missing.
            InvalidReturnError: The environment returned an invalid observation, state, snapshot or
                rendering.
            NotSupported: The environment has no snapshots, or does not render.
            Exception: An error that the environment raised.
        """
        if type(encode) is Recording:  # quicker than isinstance in the usual case
            recording: Any = encode  # type checkers consider it a function here
            encode = recording.of(command)
        plan, environment = self.plan, self.environment
        assert plan is not None
        if self._events is not None:
            hearing = self._hear(self._events, command)
            if hearing is not None:
                return self._serve_after(hearing, command, encode, strict)
        ignored: tuple[str, ...] = ()
        action: Any = None
        if isinstance(command, Step):
            method = plan.step
            action, passed = command.action, command.arguments
            read = self._read_action if type(action) is dict else None
            try:
                action = self.spec.decode_action(action) if read is None else read(action)
            except ValidationError:
                action = self.spec.decode_action(action)  # raises with the details
            if passed:
                passed, ignored = self._split(method, passed, strict)
            try:
                value = getattr(environment, method.name)(action, **passed)
            except TypeError as error:
                method.check_nothing_is_missing(error, passed)
                raise
        elif isinstance(command, Reset):
            method, passed = plan.reset, command.arguments
            if type(command) is Reset and names_task(self.spec, passed):
                return self._serve_with_task(passed, encode, strict)
            if passed:
                passed, ignored = self._split(method, passed, strict)
            try:
                value = getattr(environment, method.name)(**passed)
            except TypeError as error:
                method.check_nothing_is_missing(error, passed)
                raise
        else:
            return self._serve_other(command, encode)
        if is_awaitable(type(value)):
            return self._transition_later(value, command, action, ignored, encode)
        self._shown = transition = normalise(value, method.name, ignored)
        if self._kinds:
            transition.kind = self._kinds.get(type(transition.observation), "")
        if self._heard:
            self._tell_of_events(transition)
        if self._scorer is not None or method is plan.reset:
            scoring = self._score(command, action, transition)
            if scoring is not None:
                return self._scored_later(scoring, transition, encode)
        return transition if encode is None else encode(transition)

    def _score(
        self, command: Command, action: Any, transition: Transition
    ) -> Coroutine[Any, Any, None] | None:
        """At the beginning of an episode, add the meaning of its rewards; at its end, score it.

        Returns a coroutine if the scorer is a coroutine function.
        """
        scorer = self._scorer
        if isinstance(command, Reset):
            declared = getattr(self.environment, "REWARD", None)  # may change with each episode
            if isinstance(declared, RewardSpec):
                spec = {SPEC: declared.as_data()}
                transition.reward_info = {**(transition.reward_info or {}), **spec}
            if scorer is not None:
                scorer.begin(transition.observation, getattr(command, "task", None))
            return None
        if scorer is None:
            return None
        score = scorer.step(action, transition.observation, transition.reward, transition.done)
        if score is None or isinstance(score, Score):
            _apply(score, transition)
            return None
        return _apply_later(score, transition)

    async def _scored_later(
        self, scoring: Awaitable[None], transition: Transition, encode: Encode | None
    ) -> Any:
        await _contained(scoring)
        return transition if encode is None else encode(transition)

    def _hear(self, queue: EventQueue, command: Command) -> Coroutine[Any, Any, None] | None:
        """Pass the events that precede a command to the environment; return a coroutine if the
        handler is async.
        """
        self._heard = ()
        if isinstance(command, Reset):
            queue.begin(command.arguments.get("seed"))
            return None
        if not isinstance(command, Step) and getattr(command, "method", None) != CALL_TOOL:
            return None
        queue.advance()
        self._heard = events = tuple(queue.due())
        hear = self.environment.on_event
        if inspect.iscoroutinefunction(hear):
            return _hear_all(hear, events) if events else None
        for event in events:
            hear(event)
        return None

    async def _serve_after(
        self,
        hearing: Coroutine[Any, Any, None],
        command: Command,
        encode: Encode | None,
        strict: bool,
    ) -> Any:
        await _contained(hearing)
        queue, self._events = self._events, None
        try:
            value = self.serve(command, encode, strict)
        finally:
            self._events = queue
        return await _awaited(value)

    def _serve_with_task(
        self, arguments: dict[str, Any], encode: Encode | None, strict: bool
    ) -> Any:
        """Begin an episode with arguments that may name a task."""
        assert self.plan is not None
        support = TaskSupport.of(self.environment, self.plan.reset)
        if self.plan.reset.is_async:
            return self._serve_with_task_later(arguments, support, encode, strict)
        if self.spec.tasks is not None:
            command = reset_to_task(*self.spec.tasks.resolve(arguments), support)
        elif support.names_own_task(arguments):
            command = reset_to_own_task(arguments, self._get_task(arguments))
        else:
            command = resolve_reset(arguments, support)
        if command.loads:
            if inspect.iscoroutinefunction(self.environment.load_task):
                raise InvalidReturnError(
                    f"{support.name}.load_task is a coroutine method, and reset is none: both are "
                    "called where the environment lives, so make them alike"
                )
            self.environment.load_task(command.task)
        return self.serve(command, encode, strict)

    async def _serve_with_task_later(
        self, arguments: dict[str, Any], support: TaskSupport, encode: Encode | None, strict: bool
    ) -> Any:
        if self.spec.tasks is not None:  # they may have to be read from disk
            chosen = await asyncio.to_thread(self.spec.tasks.resolve, arguments)
            command = reset_to_task(*chosen, support)
        elif support.names_own_task(arguments):
            command = reset_to_own_task(arguments, await _awaited(self._get_task(arguments)))
        else:
            command = resolve_reset(arguments, support)
        if command.loads:
            await _awaited(self.environment.load_task(command.task))
        return await _awaited(self.serve(command, encode, strict))

    def _get_task(self, arguments: dict[str, Any]) -> Any:
        command = CallTaskMethod("get_task", (arguments["split"], arguments["index"]))
        return call_task_method(self.environment.get_task, command)

    def _tell_of_events(self, transition: Transition) -> None:
        """Add the events that the environment received before the step to the info."""
        events = [event.model_dump(mode="json") for event in self._heard]
        transition.info = {**(transition.info or {}), EVENTS: events}

    def _split(
        self, method: Method, arguments: dict[str, Any], strict: bool
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        passed, ignored = method.split(arguments, strict=strict)
        if ignored:
            _report(type(self.environment), method, ignored)
        return passed, ignored

    def _serve_other(self, command: OtherCommand, encode: Encode | None) -> Any:
        value = self._call_other(command)
        if is_awaitable(type(value)):
            return self._reply_later(value, command, encode)
        return self._reply(value, command, encode)

    def _call_other(self, command: OtherCommand) -> Any:
        if isinstance(command, GetState):
            return self._state()
        if isinstance(command, GetTransition):
            return self._shown
        if isinstance(command, CloseEnvironment):
            return self._close()
        if isinstance(command, Render):
            return self._render()
        if isinstance(command, GetView):
            return self._view(command.message)
        if isinstance(command, TakeSnapshot):
            return self._storing(SNAPSHOT)()
        if isinstance(command, Restore):
            if self._scorer is not None:
                self._scorer.lose("the episode was restored, and its beginning is not known")
            restored = self._storing(RESTORE)(snapshot_bytes(command.data))
            if is_awaitable(type(restored)):
                return self._state_after(restored)
            self._left = self._shown
            return self._state()
        if isinstance(command, CallTaskMethod):
            return call_task_method(self._optional(command.method), command)
        method = getattr(self.environment, command.method, None)
        if method is None:
            raise NotImplementedError(command.method)
        return method(*command.arguments)

    def _state(self) -> Any:
        state = getattr(self.environment, "state")  # noqa: B009 - a duck-typed environment
        return state() if callable(state) and not isinstance(state, BaseModel) else state

    async def _state_after(self, restored: Awaitable[Any]) -> Any:
        await restored
        self._left = self._shown
        return await _awaited(self._state())

    def _optional(self, name: str) -> Callable[..., Any] | None:
        """Return an optional method of the environment; a tool of that name does not count."""
        method: Callable[..., Any] | None = getattr(self.environment, name, None)
        return method if callable(method) and not is_tool(method) else None

    def _render(self) -> Any:
        method = self._optional(RENDER)
        if method is None:
            why = f"{type(self.environment).__name__} has no method 'render': it draws nothing"
            raise NotSupported(why, feature=RENDER)
        return method()

    def _view(self, message: Any) -> Any:
        """Call the environment's methods for a web page; return their results by name."""
        arguments: dict[str, Any] = {}
        if self._shown is not None and self._shown is not self._left:
            outcome = {"reward": self._shown.reward, "done": self._shown.done}
            shown = {**to_wire_value(self._shown.observation), **outcome}
            arguments = {RENDER_WEB: shown, WEB_ACTIONS: shown}
        if message is not None:
            arguments[MESSAGE_TO_ACTION] = message
        methods = {name: self._optional(name) for name in arguments}
        calls = [(name, method, arguments[name]) for name, method in methods.items() if method]
        if any(inspect.iscoroutinefunction(method) for _, method, _ in calls):
            return _view_later(calls, message)
        return _with_action({name: method(argument) for name, method, argument in calls}, message)

    def _storing(self, name: str) -> Callable[..., Any]:
        method = self._optional(name)
        if method is not None and self._events is None:
            return method
        why = f"no method {name!r}" if method is None else "events to come, which it cannot store"
        raise NotSupported(
            f"{type(self.environment).__name__} has {why}: its episodes can be neither stored nor "
            "forked. If its seed and actions determine them, a client that keeps a journal can "
            "replay them: snapshot(replay=True), fork(n, replay=True)",
            feature=name,
        )

    def _close(self) -> Any:
        assert self.plan is not None
        environment, self.environment = self.environment, None
        close = getattr(environment, self.plan.close.name, None)
        return None if close is None else close()

    def _reply(self, value: Any, command: Command, encode: Encode | None) -> Any:
        if isinstance(command, GetState | Restore):
            if isinstance(value, _NO_STATE):
                found = "None" if value is None else type(value).__name__
                hint = " (is a `return` missing?)" if value is None else ""
                raise InvalidReturnError(
                    f"{type(self.environment).__name__}.state returned {found}; it must return a "
                    f"State, also before the first reset{hint}"
                )
            value = StateReply(value)
        elif isinstance(command, TakeSnapshot):
            if not isinstance(value, bytes | bytearray | memoryview):
                why = f"snapshot returned {type(value).__name__}; it must return bytes"
                raise InvalidReturnError(why)
            value = SnapshotReply(bytes(value))
        elif isinstance(command, Render):
            value = RenderReply(checked_rendering(value))
        elif isinstance(command, GetView):
            value = _with_kinds(checked_view(value), self.spec.action_cls)
        return value if encode is None else encode(value)

    async def _reply_later(
        self, awaitable: Awaitable[Any], command: Command, encode: Encode | None
    ) -> Any:
        value = await _contained(awaitable)
        called = command.method if isinstance(command, CallMethod) else None
        if self._scorer is not None and called == CALL_TOOL:
            await self._score_call(self._scorer, command, value)
        return self._reply(value, command, encode)

    async def _score_call(self, scorer: EpisodeScorer, command: Any, value: Any) -> None:
        """Score an episode that a tool call of an agent has ended, as for a step."""
        name, arguments = command.arguments[:2]
        transition = normalise(value, CALL_TOOL)
        action = CallToolAction(tool_name=name, arguments=arguments)
        score = scorer.step(action, value, transition.reward, transition.done)
        _apply(await _awaited(score), transition)
        value.reward = transition.reward
        if transition.reward_info:
            value.metadata[REWARD_INFO] = transition.reward_info

    async def _transition_later(
        self,
        awaitable: Awaitable[Any],
        command: Step | Reset,
        action: Any,
        ignored: tuple[str, ...],
        encode: Encode | None,
    ) -> Any:
        plan = self.plan
        assert plan is not None
        method = plan.reset if isinstance(command, Reset) else plan.step
        try:
            value = await _contained(awaitable)
        except TypeError as error:
            method.check_nothing_is_missing(error, command.arguments)
            raise
        name = method.name.removesuffix("_async")
        self._shown = transition = normalise(value, name, ignored)
        if self._kinds:
            transition.kind = self._kinds.get(type(transition.observation), "")
        if self._heard:
            self._tell_of_events(transition)
        scoring = self._score(command, action, transition)
        if scoring is not None:
            await _contained(scoring)
        return transition if encode is None else encode(transition)

    def begin(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        """Run a coroutine that `serve` returned, in the environment's own context."""
        if sys.version_info >= (3, 12):
            return asyncio.Task(coroutine, loop=loop, context=self.context, eager_start=True)
        if sys.version_info >= (3, 11):
            return loop.create_task(coroutine, context=self.context)
        return self.context.run(loop.create_task, coroutine)


_NO_STATE = (type(None), str, bytes, int, float, list, tuple, set, frozenset)


@once_per_class
def has_event_queue(cls: type) -> bool:
    """Return whether a class's `events` is the event queue and not another attribute."""
    return inspect.getattr_static(cls, "events", None) is vars(Environment)["events"]


def _apply(score: Score | None, transition: Transition) -> None:
    if score is not None:
        given = transition.reward, transition.reward_info
        transition.reward, transition.reward_info = apply_score(score, *given)


async def _apply_later(score: Awaitable[Score], transition: Transition) -> None:
    _apply(await score, transition)


async def _hear_all(hear: Callable[[Event], Awaitable[Any]], events: tuple[Event, ...]) -> None:
    for event in events:
        await hear(event)


@once_per_class
def is_awaitable(cls: type) -> bool:
    """Return whether instances of a class can be awaited."""
    return hasattr(cls, "__await__")


async def _view_later(
    calls: list[tuple[str, Callable[[Any], Any], Any]], message: Any
) -> dict[str, Any]:
    return _with_action({name: await _awaited(call(shown)) for name, call, shown in calls}, message)


def _with_action(view: dict[str, Any], message: Any) -> dict[str, Any]:
    """Add a default action for a message, used if the environment does not convert messages."""
    return view if message is None else {MESSAGE_TO_ACTION: {"message": message}, **view}


def _with_kinds(view: dict[str, Any], action_cls: Any) -> dict[str, Any]:
    """Return a view whose actions name their model, if several models take the same fields."""
    kinds = named_kinds(action_cls)
    if not kinds:
        return view

    def named(action: Any) -> Any:
        kind = kinds.get(type(action))
        return action if kind is None else {ACTION_TYPE: kind, **to_wire_value(action)}

    moves = [{**move, "action": named(move["action"])} for move in view["moves"]]
    return {**view, "moves": moves, "action": named(view["action"])}


MAX_REPORTED = 1000  # callers choose the names, and could invent any number of them
_REPORTED: set[tuple[type, str, str]] = set()


def _report(cls: type, method: Method, ignored: tuple[str, ...]) -> None:
    for name in (name[:100] for name in ignored):
        if (cls, method.name, name) not in _REPORTED and len(_REPORTED) < MAX_REPORTED:
            _REPORTED.add((cls, method.name, name))
            logger.warning(
                "%s.%s does not take %r; it was passed and ignored (said once a class)",
                cls.__name__,
                method.name,
                name,
            )


async def _contained(awaitable: Awaitable[Any]) -> Any:
    """Await user code on the event loop; none of its exceptions may end the loop."""
    task = asyncio.current_task()
    assert task is not None
    try:
        return await awaitable
    except Exception:
        raise
    except BaseException as error:
        if _comes_from_outside(error, task):
            raise
        raise contain(error) from error


async def _awaited(value: Any) -> Any:
    """Return a value of user code, awaiting it first if necessary."""
    return await _contained(value) if is_awaitable(type(value)) else value


def _comes_from_outside(error: BaseException, task: asyncio.Task[Any]) -> bool:
    """Return whether the task was canceled from outside, or the waiting coroutine was discarded."""
    if isinstance(error, GeneratorExit):
        return asyncio.current_task(task.get_loop()) is not task
    if isinstance(error, asyncio.CancelledError):
        # Before 3.11 an environment's own CancelledError looks like a real one.
        return sys.version_info < (3, 11) or task.cancelling() > 0
    return False
