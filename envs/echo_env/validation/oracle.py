"""What solves the tasks, for `openenv validate`. It goes into no image."""

from __future__ import annotations

import re
from typing import Any

EPISODES = [{"task": "say-a"}, {"task": "say-hello"}]
CANARIES = [
    {
        "reset": {"task": "say-hello"},
        "actions": [{"message": "Hello"}, {"message": "hello!"}],
    },
]


def oracle(view: Any) -> dict[str, Any]:
    """Say the word that is asked for."""
    found = re.search("'(.*)'", view.observation["echoed_message"])
    return {"message": found[1] if found else ""}


def do_nothing(view: Any) -> dict[str, Any] | None:
    """Say nothing."""
    return {"message": ""} if view.step < 3 else None
