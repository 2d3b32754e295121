"""A call that runs on an event loop, for a caller on another thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Coroutine
from concurrent import futures
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from openenv.client.background import Receipt

__all__ = ["Call"]

T = TypeVar("T")


class Call(futures.Future[T]):
    """A call on `loop`, and what it comes to.

    Args:
        loop: Where it runs.
        receipt: What a server has answered; given back where the caller is cancelled or interrupted
            before it has the result.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receipt: Receipt) -> None:
        super().__init__()
        self._loop = loop
        self._receipt = receipt
        self._is_given_back = False

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> None:
        """Start it; called on its loop."""
        try:
            task = self._loop.create_task(coroutine)
        except BaseException as error:
            if self.set_running_or_notify_cancel():
                self.set_exception(error)
            raise
        self.add_done_callback(functools.partial(self._cancel, task))
        task.add_done_callback(self._finish)

    def _cancel(self, task: asyncio.Task[T], _: futures.Future[T]) -> None:
        if self.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the task
                self._loop.call_soon_threadsafe(task.cancel)

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._receipt.give_back()
            self.cancel()
            self.set_running_or_notify_cancel()
            return
        error = task.exception()
        if not self.set_running_or_notify_cancel():  # its caller has stopped waiting meanwhile
            self._receipt.give_back()
        elif error is None:
            self.set_result(task.result())
        else:
            self.set_exception(error)

    def drop(self, error: BaseException) -> None:
        """Note that the caller got `error` in place of the result. Where that is not what the call
        came to, it is cancelled, or its answer given back.
        """
        if not self.cancel():
            self.add_done_callback(functools.partial(self._give_back, error))

    def _give_back(self, error: BaseException, _: futures.Future[T]) -> None:
        if self.cancelled():
            return
        if self.exception() is error:
            self._receipt.forget()
        else:
            self._is_given_back = True
            self._receipt.soon(self._receipt.give_back)

    def taken(self) -> T:
        """Wait for the result, blocking."""
        try:
            found = self.result()
        except BaseException as error:
            self.drop(error)
            raise
        if self._is_given_back:
            self._take_back()
        return found

    async def awaited(self) -> T:
        """Wait for the result on the loop that runs here."""
        try:
            found = await asyncio.wrap_future(self)
        except asyncio.CancelledError as error:
            self.drop(error)
            raise
        if self._is_given_back:
            self._take_back()
        return found

    def _take_back(self) -> None:
        self._is_given_back = False
        self._receipt.soon(self._receipt.take_back)
