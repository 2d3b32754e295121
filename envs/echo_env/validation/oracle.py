"""Solutions of the tasks, for `openenv validate`. Not part of images."""

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
    """Send the word that the task asks for."""
    found = re.search("'(.*)'", view.observation["echoed_message"])
    return {"message": found[1] if found else ""}


def do_nothing(view: Any) -> dict[str, Any] | None:
    """Send an empty message."""
    return {"message": ""} if view.step < 3 else None
