"""Episodes that the secret solves, for `openenv validate`. Not part of images."""

from __future__ import annotations

from typing import Any

EPISODES = [{"seed": 1}, {"seed": 2, "split": "test"}, {"seed": 3, "hard_mode": True}]
CANARIES = [{"reset": {"seed": 1}, "actions": [{"guess": "crane"}] * 6}]


def oracle(view: Any) -> dict[str, Any]:
    """Guess a word that is never the secret, and then the secret."""
    return {"guess": "aaaaa" if view.step == 0 else view.state["secret"]}


def do_nothing(view: Any) -> dict[str, Any]:
    """Guess a word that is never the secret."""
    return {"guess": "aaaaa"}


def secrets(view: Any) -> list[str]:
    """Return the word that no observation shows before the end."""
    return [view.state["secret"]]
