"""Further signals of single games, beside the reward: what a reward of one's own may be made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["signals_of"]

Signals = dict[str, float]


def signals_of(env_id: str, raw_state: Mapping[str, Any]) -> Signals:
    """The signals of a game after a move, each from 0 to 1; empty where it has none."""
    provider = _PROVIDERS.get(env_id.partition("-")[0])
    return {} if provider is None else provider(raw_state)


def _wordle(raw_state: Mapping[str, Any]) -> Signals:
    """Shares of the last guess that counted: its green and yellow letters; and whether it is it."""
    history = raw_state.get("guess_history") or []
    if not history:
        return {"wordle.greens": 0.0, "wordle.yellows": 0.0, "wordle.correct": 0.0}
    _, marks = history[-1]
    greens = marks.count("G") / len(marks)
    return {
        "wordle.greens": greens,
        "wordle.yellows": marks.count("Y") / len(marks),
        "wordle.correct": float(greens == 1.0),
    }


_PROVIDERS: dict[str, Callable[[Mapping[str, Any]], Signals]] = {"Wordle": _wordle}
