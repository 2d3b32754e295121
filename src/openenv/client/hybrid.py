"""Answers that can be awaited, or simply read. All guessing between the two is in this file.

Trainers call ``client.reset().observation`` on a bare client; others ``await client.reset()``.
Where no event loop runs on the calling thread, a call just returns its answer. Where one runs,
it returns a pending answer whose request is already on its way: awaiting it waits without
blocking the loop, reading any part of it waits and blocks. Only inside ``async with client``
must it be awaited, since there the connection lives on the caller's own loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from openenv._lazy import lazy_module
from openenv.client import background
from openenv.types import StepResult

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures
else:
    asyncio = lazy_module("asyncio")
    futures = lazy_module("concurrent.futures")

__all__ = ["Pending", "PendingState", "PendingStep", "launch", "resolve"]

T = TypeVar("T")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")

if TYPE_CHECKING:
    Source = Coroutine[Any, Any, T] | futures.Future[T]


class Pending(Generic[T]):
    """An answer on its way. Await it, or read an attribute of the answer."""

    def __init__(self, source: Source[T]) -> None:
        self._source = source

    def __await__(self) -> Generator[Any, None, T]:
        return _await(self._source)

    def result(self) -> T:
        """Wait for the answer, blocking."""
        return _wait(self._source)

    def __repr__(self) -> str:
        if isinstance(self._source, futures.Future):
            return repr(self.result())
        return f"<{type(self).__name__}: await it>"

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self.result(), name)


class PendingState(Pending[StateT]):
    """A `State` on its way."""

    if TYPE_CHECKING:

        @property
        def episode_id(self) -> str | None:
            """Identifies the running episode."""
            ...

        @property
        def step_count(self) -> int:
            """Steps taken since the last reset."""
            ...


_FIELDS = frozenset({"observation", "reward", "done", "metadata", "truncated", "info"})


class PendingStep(StepResult[ObsT]):
    """A `StepResult` on its way. It is one, as soon as any field is read."""

    def __init__(self, source: Source[StepResult[ObsT]]) -> None:
        vars(self)["_source"] = source

    def __await__(self) -> Generator[Any, None, StepResult[ObsT]]:
        return _await(vars(self)["_source"])

    def result(self) -> StepResult[ObsT]:
        """Wait for the answer, blocking."""
        return _wait(vars(self)["_source"])

    # The dataclass's defaults are class attributes, so __getattr__ would never be asked.
    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            fields = object.__getattribute__(self, "__dict__")
            if name not in fields:
                fields.update(vars(self.result()))
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(vars(self)["_source"], futures.Future):
            return self is other
        return self.result() == (other.result() if isinstance(other, PendingStep) else other)

    def __hash__(self) -> int:
        return id(self)  # asyncio.gather keeps what it waits for in a dict

    def __repr__(self) -> str:
        if isinstance(vars(self)["_source"], futures.Future):
            return repr(self.result())
        return "<PendingStep: await it>"

    def __reduce__(self) -> tuple[Any, ...]:
        return self.result().__reduce__()  # type: ignore[return-value]

    def __copy__(self) -> StepResult[ObsT]:
        return self.result()


def _await(source: Source[T]) -> Generator[Any, None, T]:
    if isinstance(source, futures.Future):
        return asyncio.wrap_future(source).__await__()
    return source.__await__()


def _wait(source: Source[T]) -> T:
    if not isinstance(source, futures.Future):
        raise RuntimeError(
            "inside `async with`, the client lives on this event loop, and waiting for it here "
            "would wait for ever; await it: `result = await client.reset()`"
        )
    return source.result()


def launch(
    coroutine: Coroutine[Any, Any, T], home: asyncio.AbstractEventLoop | None, *, block: bool
) -> T | Source[T]:
    """Start `coroutine` on the loop its client lives on, and return its answer or its source.

    Args:
        coroutine: The call.
        home: The loop that the client's connection belongs to; None for the shared one.
        block: Wait, even where a loop runs on this thread.
    """
    here = background.running_loop()
    home = home or background.background_loop()
    if here is home and not block:
        return coroutine
    if here is None or block:
        return background.run(coroutine, home)
    return background.submit(coroutine, home)


def resolve(answer: Any) -> Any:
    """Wait for an answer of any kind: pending, a coroutine, or already there."""
    if isinstance(answer, Pending | PendingStep):
        return answer.result()
    if inspect.iscoroutine(answer):
        return background.run(answer)
    return answer
