"""Games of catch in which staying misses the ball, for `openenv validate`.

Not part of images.
"""

from __future__ import annotations

from typing import Any

ROWS, COLUMNS = 10, 5
LEFT, STAY, RIGHT = 0, 1, 2
EPISODES = [{"seed": seed} for seed in (0, 1, 3, 5)]
CANARIES = [{"reset": {"seed": 0}, "actions": [{"action_id": LEFT}] * 9}]


def oracle(view: Any) -> dict[str, Any]:
    """Move the paddle below the ball."""
    seen = view.observation["info_state"]
    ball, paddle = (at % COLUMNS for at, is_there in enumerate(seen) if is_there)
    return {"action_id": LEFT if ball < paddle else RIGHT if ball > paddle else STAY}


def do_nothing(view: Any) -> dict[str, Any] | None:
    """Stay until the ball is about to land."""
    return {"action_id": STAY} if view.step < ROWS - 2 else None
