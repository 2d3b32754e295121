"""The good environment, and its mutants, served from a thread of this process."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from support.servers import serving

from openenv.validation.manifest import ExecutionDeclaration
from openenv.validation.providers import ExecResult, LaunchSpec, SubjectError, UnmetRequirement
from openenv.validation.types import ProviderCapability

from .good_env.server.serving import application

__all__ = ["GOOD", "ThreadProvider", "copied"]

GOOD = Path(__file__).with_name("good_env")


class ThreadProvider:
    """Serves the good environment, or one of its mutants, from a thread."""

    name = "thread"
    capabilities: frozenset[ProviderCapability] = frozenset()
    supported_network_modes = frozenset({"public"})

    def __init__(self, mutant: str | None = None) -> None:
        self.mutant = mutant

    def build(self, root: Path, execution: ExecutionDeclaration) -> str:
        return "sha256:" + "0" * 64

    def start(self, spec: LaunchSpec) -> ThreadSubject:
        try:
            app = application(self.mutant, spec.env_vars)
        except RuntimeError as error:
            raise SubjectError("start", str(error), logs="RuntimeError\n") from error
        return ThreadSubject(app)


class ThreadSubject:
    """One that serves."""

    def __init__(self, app: Any) -> None:
        self._stack = contextlib.ExitStack()
        self.base_url = self._stack.enter_context(serving(app))

    def inspect(self) -> dict[str, Any]:
        return {"provider": "thread", "pid": os.getpid()}

    def logs(self, max_bytes: int = 65536) -> str:
        return ""

    def exec(self, argv: list[str], timeout_s: float) -> ExecResult:
        raise UnmetRequirement("exec", "a thread runs no commands")

    def stop(self) -> None:
        self._stack.close()


def copied(to: Path) -> Path:
    """A copy of the good environment's package, to change something in."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(GOOD, to / "good_env", ignore=ignored))
