"""Values, types and fields as Python source, laid out as `ruff format` does at 100 columns."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "EXAMPLES",
    "Bracketed",
    "Code",
    "SourceField",
    "code_of",
    "laid_out",
    "one_line",
    "step_of",
    "text",
]

# An argument of each type, for a call that is tried.
EXAMPLES = {"int": 1, "float": 1.0, "bool": True, "str": "a", "list": [], "dict": {}}

WIDTH = 100
STEP = "    "


@dataclass(frozen=True)
class Bracketed:
    """A list, a call, a subscript: what stands in brackets, each with what is before it.

    Attributes:
        opening: Up to the bracket that opens.
        items: For each, what stands before it (``name=``), and itself.
        closing: The other bracket.
    """

    opening: str
    items: Sequence[tuple[str, Code]]
    closing: str


Code = str | Bracketed


def code_of(value: Any) -> Code:
    """A value of lists, dicts, tuples, numbers, texts and None."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return Bracketed("{", [(f"{text(key)}: ", code_of(one)) for key, one in value.items()], "}")
    if isinstance(value, list):
        return Bracketed("[", [("", code_of(one)) for one in value], "]")
    if isinstance(value, tuple):
        return Bracketed("(", [("", code_of(one)) for one in value], ")")
    return repr(value)


def one_line(code: Code) -> str:
    """It in one line."""
    if isinstance(code, str):
        return code
    items = [before + one_line(one) for before, one in code.items]
    comma = "," if code.opening == "(" and len(items) == 1 else ""
    return f"{code.opening}{', '.join(items)}{comma}{code.closing}"


def laid_out(code: Code, indent: str = "", taken: int = 0) -> str:
    """It in one line, or an item a line where that is too long.

    Args:
        code: What is to be laid out.
        indent: Of the line that it begins in.
        taken: The columns that are taken in this line, after the indent and after the code.
    """
    line = one_line(code)
    if isinstance(code, str) or not code.items or len(indent) + taken + len(line) <= WIDTH:
        return line
    return _exploded(code, indent)


def _exploded(code: Bracketed, indent: str) -> str:
    deeper = indent + STEP
    items = [
        f"{deeper}{before}{laid_out(one, deeper, len(before) + 1)}," for before, one in code.items
    ]
    return "\n".join([code.opening, *items, f"{indent}{code.closing}"])


@dataclass(frozen=True)
class SourceField:
    """A field of a model, in source.

    Attributes:
        name: Its name.
        annotation: Its type.
        arguments: Those of Pydantic's `Field`.
        describes: What the field holds, for people: a space.
        description: What it means.
    """

    name: str
    annotation: Code
    arguments: Mapping[str, Code] = field(default_factory=dict)
    describes: str = ""
    description: str = ""

    def source(self) -> str:
        """The line or lines of it in the body of a class."""
        told = [(f"{name}=", value) for name, value in self.arguments.items()]
        told.append(("description=", _split(self.description, STEP * 2, len("description=,"))))
        made = Bracketed("Field(", told, ")")
        begin = f"{STEP}{self.name}: "
        line = f"{begin}{one_line(self.annotation)} = {one_line(made)}"
        if len(line) <= WIDTH and "\n" not in line:
            return f"{line}\n"
        annotation = laid_out(self.annotation, STEP, len(begin) - len(STEP) + len(" = Field("))
        return f"{begin}{annotation} = {_exploded(made, STEP)}\n"


def step_of(action: str, arguments: Mapping[str, Any]) -> str:
    """The line or lines of an example in which an action is stepped, in a block."""
    made = [(f"{name}=", code_of(one)) for name, one in arguments.items()]
    call = Bracketed("result = env.step(", [("", Bracketed(f"{action}(", made, ")"))], ")")
    return laid_out(call, STEP)


def _split(words: str, indent: str, taken: int) -> str:
    """A text as several in a row, where it is too long for one line."""
    if len(indent) + taken + len(text(words)) <= WIDTH:
        return text(words)
    lines = textwrap.wrap(words, WIDTH - len(indent) - taken - 3, break_long_words=False)
    ends = [f"{line} " for line in lines[:-1]] + lines[-1:]
    return f"\n{indent}".join(map(text, ends))


def text(value: str) -> str:
    """A text in quotes: double ones, unless that takes more backslashes."""
    quoted = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\x7f")
    if '"' in value and "'" not in value:
        return "'" + quoted[1:-1].replace('\\"', '"') + "'"
    return quoted
