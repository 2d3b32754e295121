"""Environments in which the parrot lives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from openenv.agents import (
    HarnessConfig,
    HarnessEnvironment,
    StdioHarnessAdapter,
)
from openenv.tools import tool

PARROT = str(Path(__file__).with_name("parrot.py"))
HERE = str(Path(__file__).parent)


def config(*arguments: str, **options: Any) -> HarnessConfig:
    """How the parrot is run."""
    options = {"working_directory": HERE, "session_timeout_s": 20.0, **options}
    return HarnessConfig(name="parrot", command=[sys.executable, PARROT, *arguments], **options)


class Parrot(StdioHarnessAdapter):
    """The parrot, which says so when it is ready, and has a tool `bash` of its own."""

    BUILTIN_TOOL_NAMES = frozenset({"bash"})

    def __init__(self, *arguments: str, **options: Any) -> None:
        super().__init__(config(*arguments, **options), ready_check=lambda line: "ready" in line)


class Desk(HarnessEnvironment):
    """A desk with a bell, at which a parrot sits."""

    def __init__(self, *arguments: str, rubric: Any = None, **options: Any) -> None:
        super().__init__(Parrot(*arguments, **options), rubric=rubric)
        self.rung = 0

    @tool
    def ring(self, times: int = 1) -> int:
        """Ring the bell."""
        self.rung += times
        return self.rung

    @tool
    def bash(self, command: str) -> str:
        """A tool that the parrot has, too."""
        return f"not run: {command}"
