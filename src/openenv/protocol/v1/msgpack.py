"""Check of MessagePack frames before decoding: the keys of all maps must be text.

An array used as a key becomes a tuple, and anyone can make many tuples with the same hash. A map
with n such keys takes time that grows with n squared, during which the event loop serves no one.
(Hashes of texts are secret, and few numbers share a hash.)

The format is that of https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

import contextlib
import re

MAX_DEPTH = 1000

# By the first byte of a value: the size of the value, if that byte determines it; otherwise 0. It
# does for most values: small and large numbers, null, booleans, short texts, fixed extensions.
_SIZES = [0] * 256
for _size, _heads in {
    1: (*range(0x80), 0xC0, 0xC2, 0xC3, *range(0xE0, 0x100)),
    2: (0xCC, 0xD0),
    3: (0xCD, 0xD1, 0xD4),
    4: (0xD5,),
    5: (0xCA, 0xCE, 0xD2),
    6: (0xD6,),
    9: (0xCB, 0xCF, 0xD3),
    10: (0xD7,),
    18: (0xD8,),
}.items():
    for _head in _heads:
        _SIZES[_head] = _size
_SIZES[0xA0:0xC0] = range(1, 33)  # a text of up to 31 bytes
# Patterns that match a run of numbers of the same size.
_RUNS = {
    1: re.compile(rb"[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]*"),
    5: re.compile(rb"(?:[\xca\xce\xd2].{4})*", re.DOTALL),
    9: re.compile(rb"(?:[\xcb\xcf\xd3].{8})*", re.DOTALL),
}
_LONG_ARRAY = 16  # number of values from which looking for a run pays off
# By the first byte: the size of the length of a text, bytes, an extension, an array or a map.
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_ARRAYS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_IS_TEXT = [0xA0 <= head <= 0xBF or head in _TEXTS for head in range(256)]


def check_keys(frame: bytes | bytearray) -> None:
    """Refuse a frame with a map whose keys are not all texts, or with too deep nesting.

    Damaged frames are left to the decoder.

    Raises:
        ValueError: A key is not text.
        RecursionError: Containers are nested more than 1000 deep.
    """
    with contextlib.suppress(IndexError):  # the frame ends too early
        _look_through(frame)


def _look_through(frame: bytes | bytearray) -> None:
    sizes, is_text = _SIZES, _IS_TEXT
    at, left, is_map = 0, 1, False  # `left` values remain in the current container
    outer: list[tuple[int, bool]] = []
    while True:
        while not left:
            if not outer:
                return
            left, is_map = outer.pop()
        head = frame[at]
        if is_map:
            if not (left & 1 or is_text[head]):
                raise ValueError("the keys of a map are texts")
        elif left >= _LONG_ARRAY and (run := _RUNS.get(size := sizes[head])) is not None:
            end = run.match(frame, at, at + size * left).end()  # type: ignore[union-attr]
            if end > at:
                left -= (end - at) // size
                at = end
                continue
        left -= 1
        if size := sizes[head]:
            at += size
        elif (width := _TEXTS.get(head) or _BYTES.get(head)) is not None:
            at += 1 + width + int.from_bytes(frame[at + 1 : at + 1 + width], "big")
        elif (width := _EXTENSIONS.get(head)) is not None:
            at += 2 + width + int.from_bytes(frame[at + 1 : at + 1 + width], "big")
        else:
            outer.append((left, is_map))
            if len(outer) > MAX_DEPTH:
                raise RecursionError("it is nested too deep")
            if 0x80 <= head <= 0x9F:
                is_map, left, at = head < 0x90, head & 0x0F, at + 1
            elif (width := _ARRAYS.get(head) or _MAPS.get(head)) is not None:
                is_map = head in _MAPS
                left = int.from_bytes(frame[at + 1 : at + 1 + width], "big")
                at += 1 + width
            else:
                return  # no value begins with this byte
            left *= 2 if is_map else 1
