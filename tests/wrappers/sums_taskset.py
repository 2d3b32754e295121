"""A taskset of verifiers; imported by a Python that has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf


class SumData(vf.TaskData):  # type: ignore[misc]
    answer: str = ""


class SumTask(vf.Task[SumData]):  # type: ignore[misc]
    @vf.reward  # type: ignore[untyped-decorator]
    async def exact(self, trace: Any) -> float:
        said = (trace.last_message.content or "").strip()
        if said == "boom":
            raise RuntimeError("the rubric broke")
        return float(said == self.data.answer)


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):  # type: ignore[misc]
    def load(self) -> Iterator[SumTask]:
        for n in range(4):
            yield SumTask(SumData(prompt=f"What is {n} + {n}?", answer=str(2 * n)))


__all__ = ["Sums"]
