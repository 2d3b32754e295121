"""Further signals of single games, from which a trainer can compute a reward of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["compute_signals"]

Signals = dict[str, float]


def compute_signals(env_id: str, raw_state: Mapping[str, Any], said: Sequence[str]) -> Signals:
    """Compute the signals of a game after a move; most games have none.

    Args:
        env_id: The game.
        raw_state: The game's own state.
        said: The agent's messages so far.
    """
    provider = _PROVIDERS.get(env_id.partition("-")[0])
    return {} if provider is None else provider(raw_state, said)


def _compute_wordle_signals(raw_state: Mapping[str, Any], said: Sequence[str]) -> Signals:
    """Compute the signals of Wordle.

    They are the shares of green and yellow letters in the last guess that counted, whether it is
    right, and 1 minus the number of earlier guesses that equal the last one.
    """
    history = raw_state.get("guess_history") or []
    marks = history[-1][1] if history else []
    greens = sum(mark == "G" for mark in marks) / max(len(marks), 1)
    guesses = [_find_guess(message) for message in said]
    before = guesses[:-1].count(guesses[-1]) if guesses and guesses[-1] else 0
    return {
        "wordle.greens": greens,
        "wordle.yellows": sum(mark == "Y" for mark in marks) / max(len(marks), 1),
        "wordle.correct": float(greens == 1.0),
        "wordle.repetitions": 1.0 - before,
    }


_GUESS = re.compile(r"\[([a-z]{5})\]")


def _find_guess(message: str) -> str:
    found = _GUESS.search(message.lower())
    return "" if found is None else found[1]


_Provider = Callable[[Mapping[str, Any], Sequence[str]], Signals]
_PROVIDERS: dict[str, _Provider] = {"Wordle": _compute_wordle_signals}
