"""The reference server of ORS, of the package `openreward`, in the league.

    python ors_echo.py PORT

It is served as `Server.run` serves it, but on the loopback address, and with
`OPENREWARD_LOG_LEVEL=WARNING` it does not write lines for every request.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from openreward.environments import (  # type: ignore[import-not-found]
    Environment,
    Server,
    TextBlock,
    ToolOutput,
    tool,
)
from pydantic import BaseModel


class Text(BaseModel):
    text: str


class Echo(Environment):  # type: ignore[misc]
    """An environment that says what it is told."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{}]

    async def get_prompt(self) -> list[Any]:
        return [TextBlock(text="")]

    @tool  # type: ignore[untyped-decorator]
    async def echo(self, args: Text) -> ToolOutput:
        """Say the text."""
        return ToolOutput(blocks=[TextBlock(text=args.text)], reward=1.0, finished=False)


if __name__ == "__main__":
    uvicorn.run(
        Server([Echo]).app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        timeout_keep_alive=60,
        access_log=False,
        log_level="warning",
    )
