"""The marks of a guess, and the knowledge that marks give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..models import WORD_LENGTH, Mark, MarkedGuess

__all__ = ["best_marks", "known_share", "mark", "unused_hint"]

_RANK: dict[Mark, int] = {"grey": 0, "yellow": 1, "green": 2}
_ORDINALS = ("first", "second", "third", "fourth", "fifth")


def mark(guess: str, secret: str) -> list[Mark]:
    """Mark each letter of a guess.

    A letter in its place is ``green``. Each other letter, from left to right, is ``yellow`` while
    the secret has more of this letter than are marked already. The rest is ``grey``. So the secret
    has each letter at least as often as the letter is marked ``green`` or ``yellow``.
    """
    left = Counter(s for g, s in zip(guess, secret, strict=True) if g != s)
    marks: list[Mark] = []
    for g, s in zip(guess, secret, strict=True):
        if g == s:
            marks.append("green")
        elif left[g] > 0:
            left[g] -= 1
            marks.append("yellow")
        else:
            marks.append("grey")
    return marks


def best_marks(guesses: Iterable[MarkedGuess]) -> dict[str, Mark]:
    """Return each guessed letter's best mark, in the order of the alphabet."""
    best: dict[str, Mark] = {}
    for guess in guesses:
        for letter, given in zip(guess.word, guess.marks, strict=True):
            if letter not in best or _RANK[given] > _RANK[best[letter]]:
                best[letter] = given
    return dict(sorted(best.items()))


def known_share(guesses: Iterable[MarkedGuess]) -> float:
    """Return the share of the secret that the marks reveal, from 0 to 1.

    A place whose letter is known counts a fifth. A letter of the secret whose place is not known
    counts a tenth. The share never falls as guesses are added.
    """
    places: dict[int, str] = {}
    present: Counter[str] = Counter()
    for guess in guesses:
        found = Counter(
            letter for letter, given in zip(guess.word, guess.marks, strict=True) if given != "grey"
        )
        present |= found
        places |= {
            place: letter
            for place, (letter, given) in enumerate(zip(guess.word, guess.marks, strict=True))
            if given == "green"
        }
    misplaced = present - Counter(places.values())
    return (2 * len(places) + misplaced.total()) / (2 * WORD_LENGTH)


def unused_hint(guess: str, earlier: Iterable[MarkedGuess]) -> str | None:
    """Describe the first known letter that a guess does not use, or return None.

    In hard mode a ``green`` letter stays in its place, and a guess has as many of each letter as
    the ``green`` and ``yellow`` marks of any earlier guess showed. ``grey`` letters may be tried
    again.
    """
    have = Counter(guess)
    for one in earlier:
        shown: Counter[str] = Counter()
        for place, (letter, given) in enumerate(zip(one.word, one.marks, strict=True)):
            if given == "green" and guess[place] != letter:
                return f"the {_ORDINALS[place]} letter must be {letter.upper()}"
            if given != "grey":
                shown[letter] += 1
        for letter, count in shown.items():
            if have[letter] < count:
                times = "" if count == 1 else f" {count} times"
                return f"it must have the letter {letter.upper()}{times}"
    return None
