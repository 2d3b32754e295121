"""The secret words, and the two splits that they are in."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, get_args

__all__ = ["SPLITS", "WORDS", "Split", "digest", "split_of", "words_of"]

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

_TEST_SHARE = 0.2

# Common English words of five letters, one a line; no plurals made by adding s.
WORDS = frozenset(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())


def digest(word: str) -> str:
    """What a word is called where it must not be told: 64 bits, in hexadecimal digits."""
    return hashlib.blake2b(word.encode(), digest_size=8, person=b"wordle_env").hexdigest()


def split_of(word: str) -> Split:
    """The split of a word. It depends on the word alone, so a longer list moves none."""
    return "test" if int(digest(word), 16) < _TEST_SHARE * 2**64 else "train"


def words_of(split: Split) -> tuple[str, ...]:
    """The words of a split, in the order of their digests, which tells nothing about them."""
    return _BY_SPLIT[split]


_BY_SPLIT: dict[Split, tuple[str, ...]] = {
    split: tuple(sorted((word for word in WORDS if split_of(word) == split), key=digest))
    for split in SPLITS
}
