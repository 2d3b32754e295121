"""Python source of values, types and fields, formatted as by `ruff format` at 100 columns."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A sample argument of each type.
EXAMPLES = {"int": 1, "float": 1.0, "bool": True, "str": "a", "list": [], "dict": {}}

WIDTH = 100
STEP = "    "


@dataclass(frozen=True)
class BracketedCode:
    """A bracketed expression: a list, a call, a subscript."""

    opening: str  # the text up to the opening bracket, included
    items: Sequence[tuple[str, Code]]  # the text before an item (``name=``), and the item
    closing: str


Code = str | BracketedCode


def to_code(value: Any) -> Code:
    """Convert lists, dicts, tuples, numbers, strings and None to code."""
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, dict):
        return BracketedCode(
            "{", [(f"{quote_text(key)}: ", to_code(one)) for key, one in value.items()], "}"
        )
    if isinstance(value, list | tuple):
        opening, closing = "[]" if isinstance(value, list) else "()"
        return BracketedCode(opening, [("", to_code(one)) for one in value], closing)
    return repr(value)


def to_one_line(code: Code) -> str:
    """Format code on a single line."""
    if isinstance(code, str):
        return code
    items = [before + to_one_line(one) for before, one in code.items]
    comma = "," if code.opening == "(" and len(items) == 1 else ""
    return f"{code.opening}{', '.join(items)}{comma}{code.closing}"


def format_code(code: Code, indent: str = "", taken: int = 0) -> str:
    """Format code on a single line, or with an item per line if too long.

    Other text takes `taken` columns of the line, apart from the indentation.
    """
    line = to_one_line(code)
    if isinstance(code, str) or not code.items or len(indent) + taken + len(line) <= WIDTH:
        return line
    return _format_multiline(code, indent)


def _format_multiline(code: BracketedCode, indent: str) -> str:
    deeper = indent + STEP
    items = [
        f"{deeper}{before}{format_code(one, deeper, len(before) + 1)},"
        for before, one in code.items
    ]
    return "\n".join([code.opening, *items, f"{indent}{code.closing}"])


@dataclass(frozen=True)
class SourceField:
    """A model's field as source."""

    name: str
    annotation: Code
    arguments: Mapping[str, Code]  # of Pydantic's `Field`
    describes: str  # a description of the content for people: a space
    description: str

    def source(self) -> str:
        """Return the field's lines in a class body."""
        told = [(f"{name}=", value) for name, value in self.arguments.items()]
        told.append(("description=", _split(self.description, STEP * 2, len("description=,"))))
        made = BracketedCode("Field(", told, ")")
        begin = f"{STEP}{self.name}: "
        line = f"{begin}{to_one_line(self.annotation)} = {to_one_line(made)}"
        if len(line) <= WIDTH and "\n" not in line:
            return f"{line}\n"
        annotation = format_code(self.annotation, STEP, len(begin) - len(STEP) + len(" = Field("))
        return f"{begin}{annotation} = {_format_multiline(made, STEP)}\n"


def format_step_call(action: str, arguments: Mapping[str, Any]) -> str:
    """Return the lines of an example that steps an action."""
    made = [(f"{name}=", to_code(one)) for name, one in arguments.items()]
    call = BracketedCode("result = env.step(", [("", BracketedCode(f"{action}(", made, ")"))], ")")
    return format_code(call, STEP)


def _split(words: str, indent: str, taken: int) -> str:
    """Split a long text into adjacent string literals."""
    if len(indent) + taken + len(quote_text(words)) <= WIDTH:
        return quote_text(words)
    lines = textwrap.wrap(words, WIDTH - len(indent) - taken - 3, break_long_words=False)
    ends = [f"{line} " for line in lines[:-1]] + lines[-1:]
    return f"\n{indent}".join(map(quote_text, ends))


def quote_text(value: str) -> str:
    """Quote a text with double quotes, or single quotes if those need fewer backslashes."""
    quoted = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\x7f")
    if '"' in value and "'" not in value:
        return "'" + quoted[1:-1].replace('\\"', '"') + "'"
    return quoted
