"""Solutions of bundled tasks, for `openenv validate`. Not part of images."""

from __future__ import annotations

from typing import Any

from ..server.bundled import bundled_tasks

SOLUTIONS = {task.id: task.solution for task in bundled_tasks()}
EPISODES = [{"task": "find_the_key", "seed": 1}]
CANARIES = [{"reset": {"task": "find_the_key"}, "actions": [{"kind": "submit"}]}]


def oracle(view: Any) -> dict[str, Any]:
    """Run the solution, and submit it."""
    solution = SOLUTIONS[view.reset["task"]]
    return {"kind": "run", "command": solution} if view.step == 0 else {"kind": "submit"}


def do_nothing(view: Any) -> dict[str, Any]:
    """Submit at once."""
    return {"kind": "submit"}
