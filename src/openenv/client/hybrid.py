"""Answers that can be awaited or read directly. Only this file decides between the two.

Some trainers call ``client.reset().observation`` on a bare client, others ``await client.reset()``.
If no event loop runs on the calling thread, a call returns its answer. If a loop runs there, the
call returns a pending answer whose request is already on its way: awaiting it does not block the
loop, reading any part of it does. Inside ``async with client`` the answer must be awaited, since
the connection lives on the caller's own loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from openenv._internal.lazy import asyncio, futures
from openenv.client import background
from openenv.types import StepResult

if TYPE_CHECKING:
    from openenv.client._calls import PendingCall

T = TypeVar("T")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")

if TYPE_CHECKING:
    Source = Coroutine[Any, Any, T] | PendingCall[T]


# Attributes that asyncio looks for when it describes a task. They are no attributes of an answer.
_OF_COROUTINES = frozenset(
    f"{kind}_{what}" for kind in ("cr", "gi", "ag") for what in ("code", "running", "frame")
)


class Runnable:
    """A base class of objects that `asyncio.run` and `create_task` accept as coroutines."""

    if TYPE_CHECKING:

        def __await__(self) -> Generator[Any, None, Any]: ...

    def send(self, value: Any) -> Any:
        """Run to the next wait or to the end; called by event loops."""
        return self._drive("send", value)

    def throw(self, *error: Any) -> Any:
        """Continue with an error; called by event loops."""
        return self._drive("throw", *error)

    def close(self) -> Any:
        """Discard a coroutine that was never run."""

    def _drive(self, how: str, *arguments: Any) -> Any:
        own = vars(self)
        if "_run" not in own:
            own["_run"] = self.__await__()
        try:
            return getattr(own["_run"], how)(*arguments)
        except BaseException:  # the run has ended, in any way; the next one starts anew
            own.pop("_run", None)
            raise


class _OnItsWay(Runnable, Generic[T]):
    """A pending answer from a source: a future or a coroutine."""

    if TYPE_CHECKING:
        _source: Source[T]

    def __init__(self, source: Source[T]) -> None:
        own = vars(self)
        own["_source"] = source
        if isinstance(source, futures.Future):
            source.reports_error = True
        else:  # an event loop drives the coroutine itself
            own["send"], own["throw"] = source.send, source.throw

    def __await__(self) -> Generator[Any, None, T]:
        source = self._source
        if isinstance(source, futures.Future):
            source.reports_error = False
            return source.awaited().__await__()
        return source.__await__()

    def __repr__(self) -> str:
        if isinstance(self._source, futures.Future):
            return repr(self.result())
        return f"<{type(self).__name__}: await it>"

    def throw(self, *error: Any) -> Any:
        """Continue with an error; called by event loops, also on a task that has not begun."""
        own = vars(self)
        if "_run" not in own:
            _drop(self._source, asyncio.CancelledError())
        return super().throw(*error)

    def result(self) -> T:
        """Wait for the answer, and block this thread."""
        source = self._source
        if not isinstance(source, futures.Future):
            raise RuntimeError(
                "inside `async with`, the client lives on this event loop, and waiting for it here "
                "would wait for ever; await it: `result = await client.reset()`"
            )
        source.reports_error = False
        return source.taken()

    def close(self) -> Any:
        """Discard a call that was never awaited; a call under way continues."""
        if not isinstance(self._source, futures.Future):
            self._source.close()


class Pending(_OnItsWay[T]):
    """A pending answer. Await it, or read an attribute of the answer."""

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name.startswith("__") or name in _OF_COROUTINES:
                raise AttributeError(name)
            try:
                return getattr(self.result(), name)
            except AttributeError:
                raise
            except BaseException as error:  # possibly from a signal handler
                _drop(self._source, error)
                raise


class PendingValue(Pending[T]):
    """A pending plain value, such as a list or a bool."""

    def __bool__(self) -> bool:
        return bool(self.result())

    def __len__(self) -> int:
        return len(self.result())  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.result())  # type: ignore[call-overload,no-any-return]

    def __getitem__(self, key: Any) -> Any:
        return self.result()[key]  # type: ignore[index]


class PendingClient(Pending[T]):
    """A pending client. `close` closes the client once it exists."""

    def close(self) -> Any:
        """Close the client, or discard a call that was never awaited."""
        if isinstance(self._source, futures.Future):
            return self.result().close()  # type: ignore[attr-defined]
        return super().close()


class PendingState(Pending[StateT]):
    """A pending `State`."""

    if TYPE_CHECKING:

        @property
        def episode_id(self) -> str | None:
            """The id of the running episode."""
            ...

        @property
        def step_count(self) -> int:
            """Steps taken since the last reset."""
            ...


class _Field:
    """A field of a pending step: reading the field waits for the answer."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, step: Any, owner: Any = None) -> Any:
        if step is None:
            return getattr(StepResult, self._name)
        own = vars(step)
        if self._name not in own:
            try:
                own.update({**vars(step.result()), **own})  # assigned values win
            except BaseException as error:  # possibly from a signal handler
                _drop(own["_source"], error)
                raise
        return own[self._name]

    def __set__(self, step: Any, value: Any) -> None:
        vars(step)[self._name] = value


class PendingStep(_OnItsWay[StepResult[ObsT]], StepResult[ObsT]):
    """A pending `StepResult`, complete as soon as any field is read."""

    if not TYPE_CHECKING:
        observation, reward, done = _Field(), _Field(), _Field()
        metadata, truncated, info = _Field(), _Field(), _Field()
        reward_info = _Field()

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(vars(self)["_source"], futures.Future):
            return self is other
        return self.result() == (other.result() if isinstance(other, PendingStep) else other)

    def __hash__(self) -> int:
        return id(self)  # `asyncio.gather` uses awaitables as dict keys

    def __reduce__(self) -> tuple[Any, ...]:
        return self.result().__reduce__()  # type: ignore[return-value]

    def __copy__(self) -> StepResult[ObsT]:
        return self.result()


def _drop(source: Source[Any], error: BaseException) -> None:
    if isinstance(source, futures.Future):
        source.reports_error = False
        source.drop(error)


def launch(
    coroutine: Coroutine[Any, Any, T], home: asyncio.AbstractEventLoop | None, *, block: bool
) -> T | Source[T]:
    """Start `coroutine` on the client's loop, and return the answer or the source of the answer.

    Args:
        coroutine: The call.
        home: The loop that the client's connection belongs to; None for the shared one.
        block: Wait, even if another loop runs on this thread.
    """
    here = background.running_loop()
    home = home or background.background_loop()
    if here is home:  # waiting would never end; `PendingStep.result` raises the error
        return coroutine
    if here is None or block:
        return background.run(coroutine, home)
    return background.submit(coroutine, home)


def resolve(answer: Any) -> Any:
    """Wait for an answer of any kind: pending, a coroutine, or already there."""
    if isinstance(answer, _OnItsWay):
        try:
            return answer.result()
        except RuntimeError:
            _OnItsWay.close(answer)  # in case it is a coroutine, which cannot be waited for
            raise
    if inspect.iscoroutine(answer):
        return background.run(answer)
    return answer
