"""Names of keys, as in tmux, and the bytes that a terminal sends (xterm, `terminfo(5)`)."""

from __future__ import annotations

import difflib

__all__ = ["encode_key"]

_NAMED = {
    "Enter": b"\r",
    "Tab": b"\t",
    "Escape": b"\x1b",
    "Space": b" ",
    "Backspace": b"\x7f",
    "Delete": b"\x1b[3~",
    "Insert": b"\x1b[2~",
    "PageUp": b"\x1b[5~",
    "PageDown": b"\x1b[6~",
    "F1": b"\x1bOP",
    "F2": b"\x1bOQ",
    "F3": b"\x1bOR",
    "F4": b"\x1bOS",
    "F5": b"\x1b[15~",
    "F6": b"\x1b[17~",
    "F7": b"\x1b[18~",
    "F8": b"\x1b[19~",
    "F9": b"\x1b[20~",
    "F10": b"\x1b[21~",
    "F11": b"\x1b[23~",
    "F12": b"\x1b[24~",
}
# A program may request another form of these keys ("application cursor keys").
_CURSOR = {"Up": b"A", "Down": b"B", "Right": b"C", "Left": b"D", "Home": b"H", "End": b"F"}
_CONTROLLED = "@abcdefghijklmnopqrstuvwxyz[\\]^_"


def encode_key(name: str, application_cursor: bool = False) -> bytes:
    """Return the bytes that a terminal sends for a key.

    Args:
        name: ``"Enter"``, ``"Up"``, ``"C-c"`` (Control), ``"M-x"`` (Alt), or one character.
        application_cursor: Whether the program has requested the other form of the cursor keys.

    Raises:
        ValueError: The key is unknown; the message names a similar one.
    """
    if name in _NAMED:
        return _NAMED[name]
    if name in _CURSOR:
        return (b"\x1bO" if application_cursor else b"\x1b[") + _CURSOR[name]
    if len(name) == 1 and name.isprintable():
        return name.encode()
    if len(name) == 3 and name.startswith("C-") and name[2].lower() in _CONTROLLED:
        return bytes([_CONTROLLED.index(name[2].lower())])
    if len(name) == 3 and name.startswith("M-") and name[2].isprintable():
        return b"\x1b" + name[2].encode()
    close = difflib.get_close_matches(name, [*_NAMED, *_CURSOR], n=1, cutoff=0.5)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(
        f"there is no key {name!r}{hint}; expected one character, C- or M- and a character, or one "
        f"of {', '.join([*_CURSOR, *_NAMED])}"
    )
