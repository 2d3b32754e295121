"""An environment on the reference server of ORS; run by a Python that has `openreward`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from openreward.environments import (  # type: ignore[import-not-found]
    Environment,
    ImageBlock,
    Server,
    TextBlock,
    ToolOutput,
    terminal,
    tool,
)
from pydantic import BaseModel

PIXEL = "R0lGODlhAQABAAAAACwAAAAAAQABAAA="
TASKS = {
    "train": [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(5)],
    "test": [{"question": "What is 20 + 22?", "answer": "42"}],
}


class Note(BaseModel):
    text: str


class Answer(BaseModel):
    answer: str


class Sums(Environment):  # type: ignore[misc]
    """Add numbers."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return list(TASKS)

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return TASKS[split]

    async def setup(self) -> None:
        await asyncio.sleep(0.01)

    def get_prompt(self) -> list[Any]:
        return [
            TextBlock(text=self.task_spec["question"]),
            ImageBlock(data=PIXEL, mimeType="image/gif"),
        ]

    @tool  # type: ignore[untyped-decorator]
    async def note(self, args: Note) -> ToolOutput:
        """Write something down, unscored."""
        if args.text == "boom":
            raise RuntimeError("the pencil broke")
        return ToolOutput(blocks=[TextBlock(text=args.text)], metadata={"length": len(args.text)})

    @tool  # type: ignore[untyped-decorator]
    async def guess(self, args: Answer) -> ToolOutput:
        """Try an answer."""
        right = args.answer == self.task_spec["answer"]
        said = TextBlock(text="right" if right else "wrong")
        return ToolOutput(blocks=[said], reward=float(right), finished=right)

    @terminal  # type: ignore[untyped-decorator]
    @tool  # type: ignore[untyped-decorator]
    async def submit(self, args: Answer) -> ToolOutput:
        """Give up with a last word."""
        return ToolOutput(blocks=[], reward=-0.5, finished=True)


class Other(Sums):
    """Another one."""


if __name__ == "__main__":
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # from here on a client waits instead of being refused
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        os.dup2(2, 1)  # its log goes to standard output, which nobody reads any more
        config = uvicorn.Config(Server([Sums, Other]).app, log_level="warning", ws="none")
        uvicorn.Server(config).run(sockets=[listening])
