"""Further signals of single games, beside the reward: what a reward of one's own may be made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["signals_of"]

Signals = dict[str, float]


def signals_of(env_id: str, raw_state: Mapping[str, Any], said: Sequence[str]) -> Signals:
    """The signals of a game after a move; empty where it has none.

    Args:
        env_id: The game.
        raw_state: Its own state.
        said: What the agent has said so far.
    """
    provider = _PROVIDERS.get(env_id.partition("-")[0])
    return {} if provider is None else provider(raw_state, said)


def _wordle(raw_state: Mapping[str, Any], said: Sequence[str]) -> Signals:
    """Shares of the last guess that counted: its green and yellow letters; whether it is right; and
    1, less how often the last guess was made before.
    """
    history = raw_state.get("guess_history") or []
    marks = history[-1][1] if history else []
    greens = sum(mark == "G" for mark in marks) / max(len(marks), 1)
    guesses = [_guess(message) for message in said]
    before = guesses[:-1].count(guesses[-1]) if guesses and guesses[-1] else 0
    return {
        "wordle.greens": greens,
        "wordle.yellows": sum(mark == "Y" for mark in marks) / max(len(marks), 1),
        "wordle.correct": float(greens == 1.0),
        "wordle.repetitions": 1.0 - before,
    }


_GUESS = re.compile(r"\[([a-z]{5})\]")


def _guess(message: str) -> str:
    found = _GUESS.search(message.lower())
    return "" if found is None else found[1]


_Provider = Callable[[Mapping[str, Any], Sequence[str]], Signals]
_PROVIDERS: dict[str, _Provider] = {"Wordle": _wordle}
