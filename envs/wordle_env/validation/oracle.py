"""Words that are guessed at once, for `openenv validate`. It goes into no image."""

from __future__ import annotations

from typing import Any

EPISODES = [{"seed": 1}, {"seed": 2, "split": "test"}, {"seed": 3, "hard_mode": True}]
CANARIES = [{"reset": {"seed": 1}, "actions": [{"guess": "crane"}] * 6}]


def oracle(view: Any) -> dict[str, Any]:
    """Guess the secret, after a word that is none of the secrets."""
    return {"guess": "aaaaa" if view.step == 0 else view.state["secret"]}


def do_nothing(view: Any) -> dict[str, Any]:
    """Guess what no secret is."""
    return {"guess": "aaaaa"}


def secrets(view: Any) -> list[str]:
    """The word that no observation shows before the end."""
    return [view.state["secret"]]
