"""Answers to requests about the tasks of a server.

It never holds a private field (`openenv.types.Private`), such as a task's criteria, whoever asks.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from openenv.errors import (
    EnvironmentCrashed,
    InvalidReturnError,
    SessionClosedError,
    TooLargeError,
)
from openenv.execution.manager import SessionManager
from openenv.execution.session import Session, SessionPhase
from openenv.execution.tasks import Ask
from openenv.tasks.task import to_public_data

__all__ = ["TaskService"]

KEPT_S = 30.0  # how long the environment that is asked for tasks is kept after it was asked
TYPES = frozenset({"train", "validation", "test"})


def told_split(split: Any) -> Any:
    """Return the public data of a split: name and type."""
    if isinstance(split, Mapping | BaseModel):
        return to_public_data(split)
    name = str(split)
    known = isinstance(split, str) and name in TYPES
    return {"name": name, "type": name if known else "validation"}


def _json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null", serialize_unknown=True)


def written(value: Any, method: str, limit: int) -> bytes:
    """Write the answer of a `TaskProvider` as JSON, within `limit` bytes.

    Raises:
        TooLargeError: It is larger.
        InvalidReturnError: It is not what the method gives.
    """
    if method == "num_tasks":
        return _json(int(value))
    if method == "get_task":
        parts = [_json(to_public_data(value))]
    else:
        if isinstance(value, str | Mapping) or not hasattr(value, "__iter__"):
            raise InvalidReturnError(f"{method} returned a {type(value).__name__}; expected a list")
        parts, size = [], 0
        tell = told_split if method == "list_splits" else to_public_data
        for one in value:
            parts.append(_json(tell(one)))
            size += len(parts[-1]) + 1
            if size > limit:  # before all of them are in memory
                break
    text = parts[0] if method == "get_task" else b"[" + b",".join(parts) + b"]"
    if len(text) > limit:
        cure = "ask for fewer tasks at a time, by task_range; or raise OPENENV_MAX_MESSAGE_BYTES"
        raise TooLargeError(f"answer of {method}", len(text), limit, cure)
    return text


class TaskService:
    """Answers what clients ask of the tasks of a server.

    Where the server has none itself, the environment is asked: one that is made for that, takes no
    slot, and is kept for a while, where the class allows several at once.

    Args:
        manager: The server's sessions.
    """

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._kept: Session | None = None
        self._asking = 0
        self._alarm: asyncio.TimerHandle | None = None

    async def ask(self, method: str, *arguments: Any) -> bytes:
        """Have a method of a `TaskProvider` answer, as JSON.

        Raises:
            NotSupported: There is no such method, or it raises NotImplementedError.
            IndexError: There is no such task.
            Refused: There is no such split.
            TooLargeError: The answer is larger than the server sends.
            Exception: Whatever the environment raised.
        """
        encode = functools.partial(
            written, method=method, limit=self._manager.limits.max_message_bytes
        )
        tasks = self._manager.spec.tasks
        if tasks is not None:
            name = "iter_tasks" if method in ("list_tasks", "get_task_range") else method
            return await asyncio.to_thread(lambda: encode(getattr(tasks, name)(*arguments)))
        return await self._ask_environment(Ask(method, arguments), encode)

    async def _ask_environment(self, call: Ask, encode: Any) -> bytes:
        if not self._manager.spec.supports_concurrency:
            async with self._manager.throwaway() as session:
                answer: bytes = await session.handle(call, encode=encode)
                return answer
        try:
            return await self._ask_kept(call, encode)
        except SessionClosedError:  # as it came to be asked
            return await self._ask_kept(call, encode)

    async def _ask_kept(self, call: Ask, encode: Any) -> bytes:
        session = await self._session()
        self._asking += 1
        if self._alarm is not None:
            self._alarm.cancel()
        try:
            answer: bytes = await session.handle(call, encode=encode)
            return answer
        except EnvironmentCrashed:
            self._leave(session)
            raise
        finally:
            self._asking -= 1
            if not self._asking:
                self._leave_later()

    async def _session(self) -> Session:
        if self._is_there():
            assert self._kept is not None
            return self._kept
        session = await self._manager.create(throwaway=True)
        if self._is_there():  # another request has had one made meanwhile
            assert self._kept is not None
            self._manager.begin_to_close(session)
            return self._kept
        self._kept = session
        return session

    def _is_there(self) -> bool:
        return self._kept is not None and self._kept.phase is SessionPhase.OPEN

    def _leave_later(self) -> None:
        self._alarm = asyncio.get_running_loop().call_later(KEPT_S, self._leave, self._kept)

    def _leave(self, session: Session | None) -> None:
        if session is not None and self._kept is session:
            self._kept = None
            self._manager.begin_to_close(session)
