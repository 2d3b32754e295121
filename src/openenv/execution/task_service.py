"""Answers to requests about the tasks of a server.

It never holds a private field (`openenv.types.Private`), such as a task's criteria, for any caller.
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

IDLE_S = 30.0  # how long the environment that answers is kept after the last request
TYPES = frozenset({"train", "validation", "test"})


def _to_json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null", serialize_unknown=True)


def describe_split(split: Any) -> Any:
    """Return the public data of a split: name and type."""
    if isinstance(split, Mapping | BaseModel):
        return to_public_data(split)
    name = str(split)
    known = isinstance(split, str) and name in TYPES
    return {"name": name, "type": name if known else "validation"}


def encode_answer(value: Any, method: str, limit: int) -> bytes:
    """Write the answer of a `TaskProvider` as JSON, within `limit` bytes.

    Raises:
        TooLargeError: It is larger.
        InvalidReturnError: It is not what the method gives.
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
    """Answers what clients ask of the tasks of a server.

    Where the server has none itself, the environment is asked: one that is made for that, takes no
    slot, and is kept for a while, where the class allows several at once.
    """

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._session: Session | None = None
        self._requests = 0  # that the session serves
        self._alarm: asyncio.TimerHandle | None = None

    async def ask(self, method: str, *arguments: Any) -> bytes:
        """Have a method of a `TaskProvider` answer, as JSON.

        Raises:
            NotSupported: There is no such method, or it raises NotImplementedError.
            IndexError: There is no such task.
            Refused: There is no such split.
            TooLargeError: The answer is larger than the server sends.
            Exception: The environment, or the server's own tasks, raised it.
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
        except SessionClosedError:  # just before the session got the call
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
