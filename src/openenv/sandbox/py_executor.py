"""`PyExecutor`: runs Python in this process with smolagents' interpreter.

The interpreter walks the syntax tree and allows only listed imports, which protects against
accidents. It is no sandbox: malicious code can escape, or use all memory. Run untrusted code in
`openenv.sandbox.Interpreter`.
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
    """Runs pieces of code that share names.

    The code can call two additional functions, `format_exc` (of `traceback`) and `safe_json_dumps`.

    Args:
        additional_imports: Modules that the code may import in addition to smolagents' list.

    Raises:
        ImportError: smolagents is not installed.
    """

    def __init__(self, additional_imports: Sequence[str] | None = None) -> None:
        from smolagents.local_python_executor import LocalPythonExecutor

        self._executor = LocalPythonExecutor(list(additional_imports or ()))
        # Without tools the code has not even `print`.
        self._executor.send_tools({})
        functions = {
            "format_exc": traceback.format_exc,
            "safe_json_dumps": partial(json.dumps, default=repr),
        }
        self._executor.static_tools = {**(self._executor.static_tools or {}), **functions}

    def run(self, code: str) -> CodeExecResult:
        """Run a piece of code.

        Returns:
            A result whose `stdout` has the output, then the value of the last line as JSON, or else
            its `repr`. After an exception, `stdout` is empty, `stderr` has the traceback, and
            `exit_code` is 1.
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
    PyExecutor = None  # existing code tests for None to learn whether smolagents is installed
