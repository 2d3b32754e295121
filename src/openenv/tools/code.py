"""Code mode: a model's code runs in a sandbox where the tools are functions.

Also known as "programmatic tool calling": code that calls many tools saves a model many turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from openenv.errors import NotSupported, SandboxEnded, SandboxUnavailable
from openenv.sandbox.interpreter import Execution, Interpreter
from openenv.sandbox.sandbox import Sandbox
from openenv.types import Observation

RESULT = "__openenv_result__"

# Run before and after the code, so that only a `result` that this code assigned is returned.
BEFORE = "globals().pop('result', None)\nNone"
AFTER = f"""
if 'result' in globals():
    import json as __json
    try: {RESULT}(value=__json.loads(__json.dumps(result)))
    except (TypeError, ValueError, RecursionError): {RESULT}(value=repr(result))
    del __json
"""


class CodeMode:
    """A sandboxed Python interpreter with tools as functions.

    Args:
        tools: The functions by the names that the code uses.
        require: The guarantee that the sandbox must give; see `openenv.sandbox.Guarantee`.

    Raises:
        NotSupported: This machine has no sandbox with that guarantee.
    """

    def __init__(self, tools: Mapping[str, Callable[..., Any]], require: str) -> None:
        try:
            self._sandbox = Sandbox(require=require)
        except SandboxUnavailable as error:
            raise NotSupported(
                f"code mode runs what a model wrote, so it needs a sandbox: {error}",
                feature="code mode",
            ) from error
        self._results: list[Any] = []
        try:
            self._python = Interpreter(self._sandbox, {**tools, RESULT: self._take_result})
        except BaseException:
            self._sandbox.close()
            raise

    def _take_result(self, value: Any) -> None:
        self._results = [value]

    @property
    def is_over(self) -> bool:
        """True after the sandbox has ended."""
        return self._sandbox.is_over

    def run(self, code: str, wall_s: float) -> Observation:
        """Run code for at most `wall_s` seconds; see `MCPEnvironment.execute_code`."""
        self._results = []
        try:
            self._python.run(BEFORE)
            done = self._python.run(code, wall_s=wall_s)
            if done.exit_code == 0:
                self._python.run(AFTER)
        except SandboxEnded:
            self.close()
            raise
        metadata: dict[str, Any] = {
            "stdout": done.stdout,
            "stderr": done.stderr,
            "exit_code": done.exit_code,
            "result": self._results[0] if self._results else None,
        }
        if (error := _error(done, wall_s)) is not None:
            metadata["error"] = error
        if done.names_are_gone:
            metadata["names_are_gone"] = True
        return Observation(metadata=metadata)

    def close(self) -> None:
        """End the sandbox."""
        self._sandbox.close()


def _error(done: Execution, wall_s: float) -> str | None:
    """Return a line that says why the code failed, or None."""
    if done.timed_out:
        return f"the code took longer than {wall_s:g} s"
    if done.exit_code == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the code ended with exit code {done.exit_code}"
