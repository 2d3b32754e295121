"""The secret words and their two splits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, get_args

__all__ = ["SPLITS", "WORDS", "Split", "digest", "split_of", "words_of"]

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

_TEST_SHARE = 0.2

# Common English words of five letters, one per line, without plurals in s.
WORDS = frozenset(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())


def digest(word: str) -> str:
    """Return a word's name that does not reveal the word: 64 bits, in hexadecimal digits."""
    return hashlib.blake2b(word.encode(), digest_size=8, person=b"wordle_env").hexdigest()


def split_of(word: str) -> Split:
    """Return the split of a word. More words in the list never move a word."""
    return "test" if int(digest(word), 16) < _TEST_SHARE * 2**64 else "train"


def words_of(split: Split) -> tuple[str, ...]:
    """Return the words of a split, in the order of their digests, which reveals nothing."""
    return _BY_SPLIT[split]


_BY_SPLIT: dict[Split, tuple[str, ...]] = {
    split: tuple(sorted((word for word in WORDS if split_of(word) == split), key=digest))
    for split in SPLITS
}
