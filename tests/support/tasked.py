"""Environments that are given tasks, or have some, in each of the forms that authors write."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel

from openenv import Action, EnvClient, Environment, Observation, State
from openenv.tasks import Task
from openenv.types import Private

SECRET = "planted-answer"
ROWS = [
    {
        "id": f"sum-{i}",
        "prompt": f"What is {i} + 1?",
        "criteria": {"answer": f"{SECRET}-{i}"},
        "difficulty": i % 3,
    }
    for i in range(20)
]
SPLITS = {"train": ROWS[:15], "test": ROWS[15:]}


class Answer(Action):
    text: str = ""


class Asked(Observation):
    prompt: Any = None
    seed: int | None = None
    level: int = 0
    loads: int = 0
    task: Task | None = None


class AskedState(State):
    task: Task | None = None


class Base(Environment[Answer, Asked, AskedState]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.task: Task | None = None
        self.loads = 0
        self.steps = 0

    def begun(self, seed: int | None, level: int = 0) -> Asked:
        self.steps = 0
        prompt = None if self.task is None else self.task.prompt
        return Asked(prompt=prompt, seed=seed, level=level, loads=self.loads, task=self.task)

    def step(self, action: Answer) -> Asked:  # type: ignore[override]
        self.steps += 1
        assert self.task is not None
        is_right = action.text == self.task.criteria["answer"]
        return Asked(done=True, reward=float(is_right), task=self.task)

    @property
    def state(self) -> AskedState:
        return AskedState(step_count=self.steps, task=self.task)


class Sums(Base):
    """Its `reset` takes the whole task."""

    def reset(  # type: ignore[override]
        self, seed: int | None = None, task: Task | None = None, level: int = 0
    ) -> Asked:
        self.task = task
        return self.begun(seed, level)


class Loader(Base):
    """It is given the task before `reset`."""

    def load_task(self, task: Task | None) -> None:
        self.task = task
        self.loads += 1

    def reset(self, seed: int | None = None, level: int = 0) -> Asked:  # type: ignore[override]
        return self.begun(seed, level)


class AsyncLoader(Base):
    """The same in coroutines."""

    async def load_task(self, task: Task | None) -> None:
        self.task = task
        self.loads += 1

    async def reset(  # type: ignore[override]
        self, seed: int | None = None, level: int = 0
    ) -> Asked:
        return self.begun(seed, level)


class Mixed(Base):
    """A coroutine loads the task, and `reset` is none."""

    async def load_task(self, task: Task | None) -> None:
        raise AssertionError("nobody can await it")

    def reset(self, seed: int | None = None) -> Asked:  # type: ignore[override]
        return self.begun(seed)


class Plain(Base):
    """It knows nothing of tasks."""

    def reset(self, seed: int | None = None, level: int = 0) -> Asked:  # type: ignore[override]
        return self.begun(seed, level)


class Own(Base):
    """It has tasks by itself, as environments of old do.

    Attributes:
        made: How many there were.
        threads: Where the methods of all of them were called.
    """

    made: ClassVar[int] = 0
    threads: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1

    def reset(  # type: ignore[override]
        self, seed: int | None = None, task: str | dict[str, Any] | None = None
    ) -> Asked:
        return Asked(prompt=task, seed=seed)

    def list_splits(self) -> list[Any]:
        self.threads.add(threading.get_ident())
        return ["train", "holdout", {"name": "x", "type": "test"}, 3]

    def num_tasks(self, split: str) -> int:
        return 3

    def get_task(self, split: str, index: int) -> Any:
        if not 0 <= index < 3:
            raise IndexError(index)
        return {"id": f"{split}-{index}", "tier": index}

    def list_tasks(self, split: str) -> list[Any]:
        raise NotImplementedError

    def get_task_range(self, split: str, start: int | None, stop: int | None) -> list[Any]:
        return [self.get_task(split, index) for index in range(3)][start:stop]


class AsyncOwn(Base):
    """The same in coroutines, one of which it leaves out; its tasks are models and objects."""

    async def reset(  # type: ignore[override]
        self, seed: int | None = None, task: str | None = None
    ) -> Asked:
        return Asked(prompt=task, seed=seed)

    async def list_splits(self) -> list[Any]:
        return ["train"]

    async def num_tasks(self, split: str) -> int:
        return 2

    async def get_task(self, split: str, index: int) -> Any:
        if index > 1:
            raise IndexError(index)
        return Task(id=f"t{index}", prompt="do", criteria={"answer": SECRET})

    async def list_tasks(self, split: str) -> list[Any]:
        return [Thing(), await self.get_task(split, 0)]


class Thing:
    """Neither a dict nor a model."""

    def __init__(self, known: str = "thing", answer: str = SECRET) -> None:
        self.id = known
        self.place = (1, None)
        self._answer = answer


class Hiding(BaseModel):
    """A task of an environment's own, with what it is scored by."""

    id: str
    prompt: Any
    hidden_tests: Annotated[str, Private] = ""


@dataclass(slots=True)
class Slotted:
    """Another one."""

    id: str
    answer: Annotated[str, Private]


class Hider(Own):
    """Has such tasks, of every kind, and plays them by split and index."""

    def reset(  # type: ignore[override]
        self, seed: int | None = None, split: str | None = None, index: int | None = None
    ) -> Asked:
        task = None if split is None or index is None else self.get_task(split, index)
        return Asked(prompt=getattr(task, "id", None), seed=seed)

    def list_splits(self) -> list[Any]:
        return ["train", "test"]

    def num_tasks(self, split: str) -> int:
        return 4

    def get_task(self, split: str, index: int) -> Any:
        known, answer = f"{split}-{index}", f"{SECRET}-{index}"
        return [
            Hiding(id=known, prompt=f"do {index}", hidden_tests=answer),
            Slotted(known, answer),
            Task(id=known, prompt=f"do {index}", criteria={"answer": answer}),
            Thing(known, answer),
        ][index]

    def get_task_range(self, split: str, start: int | None, stop: int | None) -> list[Any]:
        return [self.get_task(split, index) for index in range(4)][start:stop]


class Alone(Own):
    """No two may live at once."""

    SUPPORTS_CONCURRENT_SESSIONS = False
    made: ClassVar[int] = 0


class Breaks(Base):
    """Its tasks cannot be had."""

    def reset(self) -> Asked:  # type: ignore[override]
        return Asked()

    def num_tasks(self, split: str) -> int:
        raise RuntimeError(f"planted {SECRET}")

    def list_tasks(self, split: str) -> Any:
        return 3


class SumsEnv(EnvClient[Answer, Asked, AskedState]):
    """The client."""
