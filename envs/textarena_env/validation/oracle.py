"""Games that the secret number solves, for `openenv validate`. Not part of images."""

from __future__ import annotations

from typing import Any

EPISODES = [{"env_id": "GuessTheNumber-v0", "seed": seed} for seed in (1, 2, 3)]
CANARIES = [{"reset": EPISODES[0], "actions": [{"message": "[0] [21]"}] * 2}]


def oracle(view: Any) -> dict[str, Any]:
    """Guess the number in the game's own state."""
    return {"message": f"[{view.state['raw_state']['game_number']}]"}


def do_nothing(view: Any) -> dict[str, Any]:
    """Give a guess that is not a number."""
    return {"message": "pass"}
