"""Answers to requests about the tasks of a server.

Answers never hold a private field (`openenv.types.Private`), such as a task's criteria.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from openenv.errors import EnvironmentCrashed, InvalidReturnError, SessionClosedError, TooLargeError
from openenv.execution.manager import SessionManager
from openenv.execution.session import Session, SessionPhase
from openenv.execution.tasks import CallTaskMethod
from openenv.tasks.task import to_public_data

IDLE_S = 30.0  # how long the answering environment is kept after the last request
TYPES = frozenset({"train", "validation", "test"})


def _to_json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null", serialize_unknown=True)


def describe_split(split: Any) -> Any:
    """Return the public data of a split: its name and type."""
    if isinstance(split, Mapping | BaseModel):
        return to_public_data(split)
    name = str(split)
    known = isinstance(split, str) and name in TYPES
    return {"name": name, "type": name if known else "validation"}


def encode_answer(value: Any, method: str, limit: int) -> bytes:
    """Write the answer of a `TaskProvider` as JSON, within `limit` bytes.

    Raises:
        TooLargeError: The answer is larger than `limit`.
        InvalidReturnError: The answer has the wrong type for the method.
    """
    if method == "num_tasks":
        return _to_json(int(value))
    if method == "get_task":
        text = _to_json(to_public_data(value))
    else:
        if isinstance(value, str | Mapping) or not hasattr(value, "__iter__"):
            raise InvalidReturnError(f"{method} returned a {type(value).__name__}; expected a list")
        parts, size = [], 0
        describe = describe_split if method == "list_splits" else to_public_data
        for one in value:
            parts.append(_to_json(describe(one)))
            size += len(parts[-1]) + 1
            if size > limit:  # before all of them are in memory
                break
        text = b"[" + b",".join(parts) + b"]"
    if len(text) > limit:
        cure = "ask for fewer tasks at a time, by task_range; or raise OPENENV_MAX_MESSAGE_BYTES"
        raise TooLargeError(f"answer of {method}", len(text), limit, cure)
    return text


class TaskService:
    """Answers clients' requests about the tasks of a server.

    If the server itself has no tasks, the environment answers. An environment is made for that
    without taking a slot, and kept for a while if the class allows several instances at once.
    """

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._session: Session | None = None
        self._requests = 0  # that the session is serving
        self._alarm: asyncio.TimerHandle | None = None

    async def ask(self, method: str, *arguments: Any) -> bytes:
        """Return the answer of a `TaskProvider` method, as JSON.

        Raises:
            NotSupported: There is no such method, or it raises NotImplementedError.
            IndexError: There is no such task.
            Refused: There is no such split.
            TooLargeError: The answer is larger than the server sends.
            Exception: An error of the environment or of the server's own tasks.
        """
        limit = self._manager.limits.max_message_bytes
        encode = functools.partial(encode_answer, method=method, limit=limit)
        tasks = self._manager.spec.tasks
        if tasks is not None:
            name = "iter_tasks" if method in ("list_tasks", "get_task_range") else method
            return await asyncio.to_thread(lambda: encode(getattr(tasks, name)(*arguments)))
        call = CallTaskMethod(method, arguments)
        if not self._manager.spec.supports_concurrency:
            async with self._manager.throwaway() as session:
                answer: bytes = await session.handle(call, encode=encode)
                return answer
        try:
            return await self._ask_session(call, encode)
        except SessionClosedError:  # it was closed just before the call arrived
            return await self._ask_session(call, encode)

    async def _ask_session(self, call: CallTaskMethod, encode: Any) -> bytes:
        session = self._open_session()
        if session is None:
            session = await self._manager.create(throwaway=True)
            if (other := self._open_session()) is not None:  # opened for another request meanwhile
                self._manager.begin_to_close(session)
                session = other
            self._session = session
        self._requests += 1
        if self._alarm is not None:
            self._alarm.cancel()
        try:
            answer: bytes = await session.handle(call, encode=encode)
            return answer
        except EnvironmentCrashed:
            self._close(session)
            raise
        finally:
            self._requests -= 1
            if not self._requests:
                loop = asyncio.get_running_loop()
                self._alarm = loop.call_later(IDLE_S, self._close, self._session)

    def _open_session(self) -> Session | None:
        session = self._session
        return session if session is not None and session.phase is SessionPhase.OPEN else None

    def _close(self, session: Session | None) -> None:
        if session is not None and self._session is session:
            self._session = None
            self._manager.begin_to_close(session)
