"""Judging an answer: it runs in a sandbox of its own, and what is expected of it stays outside.

The answer's process computes and says a value; whether that is the right one is decided here. So
there is nothing in there to be read, patched or ended that would tell, or change, the score.
"""

from __future__ import annotations

import ast
import contextlib
import math
from dataclasses import dataclass
from typing import Any

from openenv.errors import SandboxEnded
from openenv.reward import Score
from openenv.sandbox import Interpreter, Sandbox, SandboxPolicy

from .engines import pool
from .tasks import Case, Task

__all__ = ["Grade", "graded"]

SAID = "__openenv_said__"
MAX_SAID = 2**18
POLICY = SandboxPolicy(output_bytes=2**18, wall_s=10.0)
RELATIVE_TOLERANCE = 1e-9  # of floating point numbers


@dataclass(frozen=True)
class Grade:
    """How an answer did.

    Attributes:
        passed: How many tests hold; None where it could not be found out.
        total: How many there are.
        why: Why it could not be found out.
    """

    passed: int | None
    total: int
    why: str | None = None

    @classmethod
    def impossible(cls, why: str) -> Grade:
        """None could be found: which is no grade of 0."""
        return cls(None, 0, why)

    @property
    def is_full(self) -> bool:
        """Every test holds."""
        return self.passed is not None and self.passed == self.total

    @property
    def score(self) -> Score:
        """The part of the tests that hold, 0 to 1; unscored where that could not be found out."""
        if self.passed is None:
            return Score(unscored=self.why)
        part = self.passed / self.total
        return Score(part, {"tests_passed": part})

    @property
    def words(self) -> str:
        """What the agent is told."""
        if self.passed is None:
            return "the answer could not be scored\n"
        return f"{self.passed} of {self.total} tests passed\n"

    @property
    def notes(self) -> dict[str, Any]:
        """What goes into the observation's metadata."""
        if self.passed is None:
            return {}
        return {"tests_passed": self.passed, "tests_total": self.total}


def graded(task: Task, code: str, require: str, kind: str | None) -> Grade:
    """Judge an answer.

    Raises:
        SandboxUnavailable: There is no sandbox to run it in, and it is run nowhere else.
        SandboxEnded: None could be started.
    """
    calls = [case for case in task.tests if case.call is not None]
    programs = [case for case in task.tests if case.call is None]
    ready = pool(POLICY, require, kind)
    passed = 0
    if calls:
        with ready.lent() as warm:
            passed += _count_calls(warm.python, code, calls, task.wall_s)
    for case in programs:
        with ready.lent() as warm:
            passed += _holds_as_program(warm.sandbox, code, case, task.wall_s)
    return Grade(passed, len(task.tests))


def _count_calls(python: Interpreter, code: str, cases: list[Case], wall_s: float) -> int:
    """How many of the calls give what is expected.

    An answer that ends its sandbox fails what it was asked then, and all after it.
    """
    said: list[Any] = []
    passed = 0
    python.functions = {SAID: lambda text: said.append(text)}
    with contextlib.suppress(SandboxEnded):
        python.run(code, wall_s=wall_s)
        for case in cases:
            if not python.is_running:  # the call before has ended it
                python.run(code, wall_s=wall_s)
            said.clear()
            done = python.run(f"{SAID}(text=repr({case.call}))\nNone", wall_s=wall_s)
            is_said = done.exit_code == 0 and len(said) == 1
            passed += is_said and _is_expected(said[0], case.expected)
    return passed


def _holds_as_program(sandbox: Sandbox, code: str, case: Case, wall_s: float) -> bool:
    """Whether the answer, run as a program, prints what is expected."""
    assert case.stdin is not None and case.stdout is not None
    try:
        sandbox.write("answer.py", code)
        done = sandbox.run([sandbox.python, "answer.py"], stdin=case.stdin, wall_s=wall_s)
    except SandboxEnded:
        return False
    return done.exit_code == 0 and _lines(done.stdout) == _lines(case.stdout)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _is_expected(said: Any, expected: Any) -> bool:
    if not isinstance(said, str) or len(said) > MAX_SAID:
        return False
    try:
        value = ast.literal_eval(said)
        return _is_same(value, expected)
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return False  # such as a key that has no hash, or a number beyond any float


def _is_same(value: Any, expected: Any) -> bool:
    """Equal and of the same type, but that floats may be a little apart, and ints floats, and lists
    tuples: JSON, in which tasks may be written, knows one of each.
    """
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    if isinstance(expected, int | float) and isinstance(value, int | float):
        if isinstance(expected, int) and isinstance(value, int):
            return value == expected
        return math.isclose(value, expected, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    if isinstance(expected, list | tuple) and isinstance(value, list | tuple):
        return len(value) == len(expected) and all(map(_is_same, value, expected))
    if isinstance(expected, dict) and isinstance(value, dict):
        return value.keys() == expected.keys() and all(
            _is_same(value[key], expected[key]) for key in expected
        )
    return type(value) is type(expected) and bool(value == expected)
