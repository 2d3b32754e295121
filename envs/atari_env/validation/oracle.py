"""Actions that win the first point of Pong, for `openenv validate`. Not part of images.

A search found them. The console is deterministic, so they win the point each time.
"""

from __future__ import annotations

from typing import Any

ACTIONS = (
    "00003000000000003223330203322332220322233222230223"
    "333223333223022233232220333023332033032033302"
)
EPISODES = [{"seed": 0, "game_name": "pong", "obs_type": "ram", "max_frames": 4 * len(ACTIONS)}]
CANARIES = [{"reset": EPISODES[0], "actions": [{"action_id": action}] * 95} for action in (0, 2)]


def oracle(view: Any) -> dict[str, Any]:
    """Win the point."""
    return {"action_id": int(ACTIONS[view.step])}


def do_nothing(view: Any) -> dict[str, Any] | None:
    """Do nothing until the ball is about to pass."""
    return {"action_id": 0} if view.step < 60 else None
