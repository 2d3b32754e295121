"""Keeps the text of answers from being run as programs.

Reasoning Gym 0.1.25 scores answers of nine datasets by evaluating them: by Python's `eval`, or by
SymPy's `parse_expr`, which is `eval` too. An agent could answer with a program, which would run in
the server, or with ``entry["answer"]``. So in those modules, and nowhere else, the two names are
given to functions that read literals and formulas only and raise for anything more; the library
then scores such an answer as one that it cannot read.
"""

from __future__ import annotations

import ast
import math
from types import ModuleType
from typing import Any

import reasoning_gym
from sympy.parsing.sympy_parser import parse_expr

__all__ = ["EVALUATED", "PARSED", "FormulaError", "check_formula", "install", "parse_formula"]

_LONGEST = 2_000  # characters of an answer that is read as a literal or a formula
_LARGEST_EXPONENT = 10_000  # of all exponents of a formula, multiplied
_LARGEST_NUMBER = 10**50

# The modules of datasets that call `eval` on an answer, and those that call `parse_expr`, the
# latter by the name under which they have it.
EVALUATED = (
    reasoning_gym.algorithmic.binary_matrix,
    reasoning_gym.algorithmic.spiral_matrix,
    reasoning_gym.algorithmic.string_insertion,
    reasoning_gym.games.n_queens,
)
PARSED: dict[ModuleType, str] = {
    reasoning_gym.algebra.intermediate_integration: "sympy",
    reasoning_gym.algebra.polynomial_multiplication: "sp",
    reasoning_gym.algebra.simple_integration: "sympy",
    reasoning_gym.games.countdown: "parse_expr",
    reasoning_gym.games.puzzle24: "parse_expr",
}

_FUNCTIONS = frozenset(
    {"Abs", "acos", "asin", "atan", "cos", "cosh", "cot", "csc", "erf", "exp", "ln", "log"}
    | {"sec", "sin", "sinh", "sqrt", "tan", "tanh"}
)
_CONSTANTS = frozenset({"pi"})
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.BitXor, ast.UAdd, ast.USub)


class FormulaError(ValueError):
    """A text is no formula of numbers, one-letter names and well-known functions."""


def install() -> None:
    """Put the guards in place. Doing so again changes nothing."""
    for module in EVALUATED:
        vars(module)["eval"] = _literal
    for module, name in PARSED.items():
        library = getattr(module, name)
        if isinstance(library, ModuleType):
            setattr(module, name, _GuardedSympy(library))
        elif not isinstance(library, _GuardedSympy):
            setattr(module, name, parse_formula)


def parse_formula(text: str, *arguments: Any, **options: Any) -> Any:
    """Do what SymPy's `parse_expr` does, for formulas only.

    Raises:
        FormulaError: The text is none.
    """
    check_formula(text)
    return parse_expr(text, *arguments, **options)


def check_formula(text: str) -> None:
    """Check that a text is a formula that takes little time to work out.

    Raises:
        FormulaError: It is none.
    """
    if len(text) > _LONGEST:
        raise FormulaError(f"a formula has at most {_LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        _check_node(tree.body)
        exponents = [power.right for power in _powers(tree)]
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise FormulaError(f"this is no formula: {error}") from None
    if any(_powers(exponent) for exponent in exponents):
        raise FormulaError("an exponent has no exponents")
    sizes = [max(1.0, size) for exponent in exponents for size in _numbers(exponent)]
    if math.prod(sizes) > _LARGEST_EXPONENT:
        raise FormulaError("the exponents are too large")


class _GuardedSympy:
    """SymPy as a dataset's module sees it: all of it, but with `parse_formula`."""

    parse_expr = staticmethod(parse_formula)

    def __init__(self, sympy: ModuleType) -> None:
        self._sympy = sympy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sympy, name)


def _literal(text: str) -> Any:
    if len(text) > _LONGEST:
        raise ValueError(f"a literal has at most {_LONGEST} characters")
    return ast.literal_eval(text)


def _powers(tree: ast.AST) -> list[ast.BinOp]:
    inner = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)]
    return [node for node in inner if isinstance(node.op, ast.Pow)]


def _numbers(tree: ast.AST) -> list[float]:
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [abs(value) for value in constants if isinstance(value, int | float)]


def _check_node(node: ast.expr) -> None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        _check_node(node.left)
        _check_node(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, _OPERATORS):
        _check_node(node.operand)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id not in _FUNCTIONS:
            raise FormulaError(f"{node.func.id} is no function of a formula")
        for argument in node.args:
            _check_node(argument)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if max(_numbers(node)) > _LARGEST_NUMBER:
            raise FormulaError("a number is too large")
    elif not (isinstance(node, ast.Name) and (len(node.id) == 1 or node.id in _CONSTANTS)):
        raise FormulaError(f"a formula has no {type(node).__name__}")
