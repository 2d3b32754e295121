"""Tests of the plain text of a terminal's output, and of the marks in it."""

from __future__ import annotations

import random
import re
import subprocess

import pytest

from ..keys import encode_key
from ..server.marks import _MAX_LENGTH, Back, Began, Marks, Ready
from ..server.text import Excerpt, to_plain_text


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("a\r\nb\n", "a\nb\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        ("10%\r100%\r\n", "100%\n"),
        ("long line\rno\x1b[K\n", "no\n"),
        ("abc\b\bX\n", "aXc\n"),
        ("abc\x1b[2Dx\x1b[1Cy", "axcy"),
        ("abcd\x1b[4G\x1b[1P\x1b[1@-", "abc-"),
        ("abcdef\r\x1b[3X\x1b[5Gx", "   dxf"),
        ("gone\x1b[2K\rhere", "here"),
        ("one\x1b[5;1Htwo\x1b[2J", "one\ntwo\n"),
        ("\x1b(Bplain\x1b=\x1b>\x0f\x07", "plain"),
        ("cut \x1b[12", "cut "),
        ("\x1b]no end of it\nnext", "]no end of it\nnext"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("tab\tstays", "tab\tstays"),
        ("ä😀\rÖ", "Ö😀"),
    ],
)
def test_what_is_written_over_is_gone_and_colours_leave_nothing(sent: str, read: str) -> None:
    assert to_plain_text(sent) == read


def test_anything_may_be_sent() -> None:
    draw = random.Random(0)
    for _ in range(300):
        data = bytes(draw.choices([0x1B, 0x5B, 0x5D, 0x0D, 0x08, 0x3B, 0x39, *range(256)], k=200))
        assert "\x1b" not in to_plain_text(data.decode(errors="replace"))
    assert len(to_plain_text("\x1b[999999999C" + "x")) <= 10_001


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_an_excerpt_counts_what_it_leaves_out(step: int) -> None:
    data = "".join(f"{n}\n" for n in range(2000)).encode()
    excerpt = Excerpt(100)
    for at in range(0, len(data), step):
        excerpt.take(data[at : at + step])
    text = excerpt.text(raw=True)
    head, note, tail = re.split(r"(\n\[\.\.\. \d+ bytes are left out here \.\.\.\]\n)", text)
    assert data.decode().startswith(head) and data.decode().endswith(tail)
    assert len(head) == len(tail) == 50
    assert excerpt.left_out == len(data) - 100 and str(excerpt.left_out) in note


def printed_by_bash(marks: Marks) -> bytes:
    """Return the marks that an interactive bash prints, in a directory with an odd name."""
    odd = "/tmp/;a\x07 b"
    script = f"mkdir -p $'{odd}'; cd $'{odd}'\n{marks.setup}(exit 3)\neval \"$PROMPT_COMMAND\"\n"
    script += 'printf %s "${PS0@P}" "${PS1@P}"; rmdir "$PWD"\n'
    bash = ["/bin/bash", "--noprofile", "--norc"]
    return subprocess.run(bash, input=script.encode(), capture_output=True, check=True).stdout


@pytest.mark.parametrize("step", [1, 5, 64, 10_000])
def test_marks_are_found_however_they_are_cut(step: int) -> None:
    marks = Marks()
    data = b"before" + printed_by_bash(marks) + b"after\x1b]7770;x\x1b"
    found: list[object] = []
    for at in range(0, len(data), step):
        found += marks.split(data[at : at + step])
    kept = [one for one in found if not isinstance(one, bytes)]
    assert [type(one) for one in kept] == [Back, Began, Ready]
    (back,) = (one for one in kept if isinstance(one, Back))
    assert (back.exit_code, back.cwd) == (3, "/tmp/;a\x07 b")
    text = b"".join(one for one in found if isinstance(one, bytes))
    assert text.startswith(b"before") and b"after\x1b]7770;x" in text
    assert b"began" not in text and b"ready" not in text


def test_the_marks_of_one_shell_are_none_of_another() -> None:
    data = printed_by_bash(Marks())
    assert b"".join(one for one in Marks().split(data) if isinstance(one, bytes)) == data


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("C-c", b"\x03"),
        ("C-C", b"\x03"),
        ("C-@", b"\x00"),
        ("C-\\", b"\x1c"),
        ("M-x", b"\x1bx"),
        ("Enter", b"\r"),
        ("Up", b"\x1b[A"),
        ("ä", "ä".encode()),
    ],
)
def test_keys_are_sent_as_terminals_do(name: str, sent: bytes) -> None:
    assert encode_key(name) == sent


def test_a_key_that_is_none_is_told_with_one_that_is() -> None:
    with pytest.raises(ValueError, match="did you mean 'PageDown'"):
        encode_key("PgDown")


def test_a_mark_without_an_end_is_text_beyond_so_many_bytes() -> None:
    """The kept bytes are limited, and the next mark is recognized."""
    marks = Marks()
    begin = marks._begin
    seen = list(marks.split(begin + b"back;"))
    for _ in range(100):
        seen += marks.split(b"x" * 1000)
        assert len(marks._rest) <= _MAX_LENGTH
    seen += marks.split(begin + b"ready\x07")
    assert seen[-1] == Ready()
    assert (
        b"".join(one for one in seen if isinstance(one, bytes)) == begin + b"back;" + b"x" * 100_000
    )
