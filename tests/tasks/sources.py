"""What tests load tasks from by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openenv.tasks import Task, Taskset, load_tasks

LISTED = [{"id": f"listed-{i}", "prompt": str(i)} for i in range(3)]
A_NUMBER = 3


def rows() -> list[dict[str, Any]]:
    return [{"id": f"row-{i}", "prompt": str(i), "answer": str(i)} for i in range(5)]


def rows_of(split: str) -> list[dict[str, Any]]:
    return [{"id": f"{split}-{i}"} for i in range(2)]


def by_split() -> dict[str, list[dict[str, Any]]]:
    return {"train": rows_of("train"), "test": rows_of("test")}


def endless() -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        yield {"prompt": f"count to {number}", "difficulty": number % 3}
        number += 1


def four() -> Iterator[dict[str, Any]]:
    yield from ({"prompt": str(i)} for i in range(4))


def breaks() -> Iterator[dict[str, Any]]:
    yield from ({"prompt": str(i)} for i in range(2))
    raise OSError("the connection broke")


def filtered() -> Taskset:
    return load_tasks(rows()).filter(lambda task: task.prompt != "2")


def number() -> int:
    return A_NUMBER


def raises() -> list[Any]:
    raise RuntimeError("planted")


def made_of(row: dict[str, Any]) -> Task:
    return Task(id=row["uid"], prompt=row["question"], criteria={"answer": row["answer"]})


def fields_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["uid"], "prompt": row["question"]}
