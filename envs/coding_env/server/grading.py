"""Grading of answers: an answer runs in a sandbox of its own, and expected values stay outside.

The answer's process computes and reports a value, and this process compares it. So the sandbox
holds nothing that an answer could read, patch or end to learn or to change its score.
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

from .engines import find_pool
from .tasks import Case, Task

__all__ = ["Grade", "grade_answer"]

REPORT_FUNCTION = "__openenv_said__"
MAX_REPORT_CHARACTERS = 2**18
POLICY = SandboxPolicy(output_bytes=2**18, wall_s=10.0)
RELATIVE_TOLERANCE = 1e-9  # for floating point numbers


@dataclass(frozen=True)
class Grade:
    """The result of grading an answer.

    Attributes:
        passed: The number of tests that pass; None if the answer could not be graded.
        total: The number of tests.
        why: The reason why the answer could not be graded.
    """

    passed: int | None
    total: int
    why: str | None = None

    @classmethod
    def impossible(cls, why: str) -> Grade:
        """Make the result of an answer that could not be graded; it is unscored, not 0."""
        return cls(None, 0, why)

    @property
    def is_full(self) -> bool:
        """Whether every test passes."""
        return self.passed is not None and self.passed == self.total

    @property
    def score(self) -> Score:
        """The share of tests that pass, 0 to 1, or unscored if the answer could not be graded."""
        if self.passed is None:
            return Score(unscored=self.why)
        part = self.passed / self.total
        return Score(part, {"tests_passed": part})

    @property
    def message(self) -> str:
        """The text for the agent."""
        if self.passed is None:
            return "the answer could not be scored\n"
        return f"{self.passed} of {self.total} tests passed\n"

    @property
    def metadata(self) -> dict[str, Any]:
        """The fields for the observation's metadata."""
        if self.passed is None:
            return {}
        return {"tests_passed": self.passed, "tests_total": self.total}


def grade_answer(task: Task, code: str, require: str, kind: str | None) -> Grade:
    """Grade an answer.

    Raises:
        SandboxUnavailable: No sandbox has the guarantee. The answer does not run anywhere else.
        SandboxEnded: No sandbox could be started.
    """
    calls = [case for case in task.tests if case.call is not None]
    programs = [case for case in task.tests if case.call is None]
    ready = find_pool(POLICY, require, kind)
    passed = 0
    if calls:
        with ready.borrow() as warm:
            passed += _count_calls(warm.python, code, calls, task.wall_s)
    for case in programs:
        with ready.borrow() as warm:
            passed += _passes_as_program(warm.sandbox, code, case, task.wall_s)
    return Grade(passed, len(task.tests))


def _count_calls(python: Interpreter, code: str, cases: list[Case], wall_s: float) -> int:
    """Count the calls that return the expected value.

    An answer that ends its sandbox fails the running call and all later ones.
    """
    said: list[Any] = []
    passed = 0
    python.functions = {REPORT_FUNCTION: lambda text: said.append(text)}
    with contextlib.suppress(SandboxEnded):
        python.run(code, wall_s=wall_s)
        for case in cases:
            if not python.is_running:  # the previous call has ended the interpreter
                python.run(code, wall_s=wall_s)
            said.clear()
            done = python.run(f"{REPORT_FUNCTION}(text=repr({case.call}))\nNone", wall_s=wall_s)
            is_said = done.exit_code == 0 and len(said) == 1
            passed += is_said and _is_expected(said[0], case.expected)
    return passed


def _passes_as_program(sandbox: Sandbox, code: str, case: Case, wall_s: float) -> bool:
    """Return whether the answer, run as a program, prints the expected output."""
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
    if not isinstance(said, str) or len(said) > MAX_REPORT_CHARACTERS:
        return False
    try:
        value = ast.literal_eval(said)
        return _is_same(value, expected)
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return False  # for example an unhashable key, or a number beyond any float


def _is_same(value: Any, expected: Any) -> bool:
    """Return whether two values are equal and of the same type.

    Floats may differ by a tolerance. An int equals a float and a list equals a tuple, because JSON,
    in which tasks may be written, has only one of each.
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
