"""On a narrow terminal no line is broken inside a word; in a pipe a line stays one line."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from openenv._internal.terminal import console

PROSE = (
    "there is no module 'opnai' for the policy 'opnai:x'; did you mean openai:x? "
    "http://127.0.0.1:8000/a/path/that/is/longer/than/any/line/of/this/terminal/is is whole"
)
ROW = "  missing  cgroups              the control group / was not delegated to this process"


def printed(text: Text, width: int, *, is_terminal: bool = True) -> str:
    file = io.StringIO()
    shown = console(file=file, force_terminal=is_terminal, width=width, color_system=None)
    shown.print(text, soft_wrap=True)
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("text", [PROSE, ROW, f"{PROSE}\n\n{ROW}", "", "short\n", "\n" + PROSE])
def test_lines_are_broken_between_words(text: str, width: int) -> None:
    shown = printed(Text(text), width)
    assert shown.split() == text.split()
    for line in shown.split("\n"):
        assert len(line) <= width or len(line.split()) == 1, line
        assert line == line.rstrip()


def test_a_row_goes_on_below_its_last_column() -> None:
    assert printed(Text(ROW), 60).split("\n") == [
        "  missing  cgroups              the control group / was not",
        "                                delegated to this process",
        "",
    ]


def test_styles_stay_with_their_words() -> None:
    text = Text.assemble(("Error: ", "bold red"), "what has failed is told in some words")
    file = io.StringIO()
    console(file=file, force_terminal=True, width=20, color_system="standard").print(
        text, soft_wrap=True
    )
    assert file.getvalue().startswith("\x1b[1;31mError: \x1b[0mwhat has\n")


def test_in_a_pipe_a_line_stays_one_line() -> None:
    assert printed(Text(PROSE), 40, is_terminal=False) == PROSE + "\n"


def test_what_fits_is_left_as_it_is() -> None:
    text = "  a  b  \n\n    c \n"
    assert printed(Text(text), 40) == text + "\n"
