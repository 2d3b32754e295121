"""`PyExecutor`: Python by smolagents' interpreter, in this process.

It walks the syntax tree and lets only listed modules be imported, which keeps honest code out of
harm's way. It is no sandbox: code that wants to get out of it, or to take all of the memory, can.
For code that nobody has read there is `openenv.sandbox.Interpreter`.
"""

from __future__ import annotations

import importlib.util
import json
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from openenv.types import CodeExecResult

__all__ = ["PyExecutor"]


class PyExecutor:
    """Runs one piece of code after the other; names stay.

    The code has two functions of ours, `format_exc` (of `traceback`) and `safe_json_dumps`.

    Args:
        additional_imports: Modules that the code may import beside smolagents' own list.

    Raises:
        ImportError: There is no smolagents.
    """

    def __init__(self, additional_imports: Sequence[str] | None = None) -> None:
        from smolagents.local_python_executor import LocalPythonExecutor

        self._executor = LocalPythonExecutor(list(additional_imports or ()))
        # Without tools it has not even its own `print`.
        self._executor.send_tools({})
        functions = {
            "format_exc": traceback.format_exc,
            "safe_json_dumps": partial(json.dumps, default=repr),
        }
        self._executor.static_tools = {**(self._executor.static_tools or {}), **functions}

    def run(self, code: str) -> CodeExecResult:
        """Run a piece of code.

        Returns:
            `stdout`: what it printed, and then the value of its last line, as JSON or else its
            `repr`. After an exception `stdout` is empty, `stderr` the traceback and `exit_code` 1.
        """
        try:
            done = self._executor(code)
            parts = [done.logs] if done.logs else []
            if done.output is not None:
                parts.append(_as_text(done.output))
        except Exception:
            return CodeExecResult(stdout="", stderr=traceback.format_exc(), exit_code=1)
        return CodeExecResult(stdout="\n".join(parts), stderr="", exit_code=0)


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


if not TYPE_CHECKING and importlib.util.find_spec("smolagents") is None:
    PyExecutor = None  # what existing code asks, to see whether it is there
