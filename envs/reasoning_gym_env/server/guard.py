"""Guards against answers that are programs.

Reasoning Gym 0.1.25 scores answers of nine datasets by evaluating them, by Python's `eval` or by
SymPy's `parse_expr`, which uses `eval`. An agent could answer with a program, which would run in
the server, or with ``entry["answer"]``. So in the modules of these datasets, and nowhere else, this
module replaces the two functions. The replacements read only literals and formulas, and raise for
everything else. The library then scores such an answer as one that it cannot read.
"""

from __future__ import annotations

import ast
import math
from types import ModuleType
from typing import Any

import reasoning_gym
from sympy.parsing.sympy_parser import parse_expr

__all__ = ["EVALUATED", "PARSED", "FormulaError", "check_formula", "install", "parse_formula"]

_MAX_CHARACTERS = 2_000  # for an answer that is read as a literal or a formula
_MAX_EXPONENT = 10_000  # for the product of all exponents of a formula
_MAX_NUMBER = 10**50

# The modules of datasets that call `eval` on an answer, and those that call `parse_expr`, with the
# name by which they import it or SymPy.
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
    """The text is not a formula of numbers, one-letter names and well-known functions."""


def install() -> None:
    """Install the guards. A second call changes nothing."""
    for module in EVALUATED:
        vars(module)["eval"] = _parse_literal
    for module, name in PARSED.items():
        library = getattr(module, name)
        if isinstance(library, ModuleType):
            setattr(module, name, _GuardedSympy(library))
        elif not isinstance(library, _GuardedSympy):
            setattr(module, name, parse_formula)


def parse_formula(text: str, *arguments: Any, **options: Any) -> Any:
    """Parse a formula like SymPy's `parse_expr`, but refuse all other text.

    Raises:
        FormulaError: The text is not a formula.
    """
    check_formula(text)
    return parse_expr(text, *arguments, **options)


def check_formula(text: str) -> None:
    """Check that a text is a formula that can be computed quickly.

    Raises:
        FormulaError: The text is not a formula, or is too large.
    """
    if len(text) > _MAX_CHARACTERS:
        raise FormulaError(f"a formula has at most {_MAX_CHARACTERS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        _check_node(tree.body)
        exponents = [power.right for power in _find_powers(tree)]
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise FormulaError(f"this is no formula: {error}") from None
    if any(_find_powers(exponent) for exponent in exponents):
        raise FormulaError("an exponent has no exponents")
    sizes = [max(1.0, size) for exponent in exponents for size in _find_numbers(exponent)]
    if math.prod(sizes) > _MAX_EXPONENT:
        raise FormulaError("the exponents are too large")


class _GuardedSympy:
    """SymPy for a dataset's module, with `parse_formula` in place of `parse_expr`."""

    parse_expr = staticmethod(parse_formula)

    def __init__(self, sympy: ModuleType) -> None:
        self._sympy = sympy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sympy, name)


def _parse_literal(text: str) -> Any:
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"a literal has at most {_MAX_CHARACTERS} characters")
    return ast.literal_eval(text)


def _find_powers(tree: ast.AST) -> list[ast.BinOp]:
    inner = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)]
    return [node for node in inner if isinstance(node.op, ast.Pow)]


def _find_numbers(tree: ast.AST) -> list[float]:
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
        if max(_find_numbers(node)) > _MAX_NUMBER:
            raise FormulaError("a number is too large")
    elif not (isinstance(node, ast.Name) and (len(node.id) == 1 or node.id in _CONSTANTS)):
        raise FormulaError(f"a formula has no {type(node).__name__}")
