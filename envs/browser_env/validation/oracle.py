"""Solutions by pressing buttons and links, for `openenv validate`. Not part of images."""

from __future__ import annotations

import re
from typing import Any

EPISODES = [{"task": task, "seed": 1} for task in ("click-button/5", "click-link/3")]
CANARIES = [{"reset": {"task": "click-button/5"}, "actions": [{"kind": "answer", "text": "done"}]}]


def oracle(view: Any) -> dict[str, Any]:
    """Press the button or link that the goal names."""
    name = re.search("“(.*?)”", view.observation["goal"])
    assert name is not None
    found = re.search(rf'"{re.escape(name[1])}" \[ref=(e\d+)\]', view.observation["tree"])
    assert found is not None
    return {"kind": "click", "ref": found[1]}


def do_nothing(view: Any) -> dict[str, Any]:
    """Wait."""
    return {"kind": "wait", "seconds": 0.1}
