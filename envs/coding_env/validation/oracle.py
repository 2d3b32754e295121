"""Answers to the bundled tasks, for `openenv validate`. Not part of images."""

from __future__ import annotations

import inspect
from typing import Any

from ..server.tasks import bundled_functions

FUNCTIONS = bundled_functions()
EPISODES = [{"task": name} for name in ("digital_root", "roman", "edit_distance")]
CANARIES = [
    {"reset": {"task": "roman"}, "actions": [{"code": code, "submit": True}]}
    for code in ("", "pass", "import os; os._exit(0)", "def roman(number): return object()")
]


def oracle(view: Any) -> dict[str, Any]:
    """Submit the function from which the tests are made."""
    source = inspect.getsource(FUNCTIONS[view.reset["task"]])
    function = source[source.index("def ") :]
    return {"code": f"from collections import Counter\n{function}", "submit": True}


def do_nothing(view: Any) -> dict[str, Any]:
    """Submit an empty answer."""
    return {"code": "", "submit": True}


LEARNING = {"tasks": ["digital_root", "roman"], "iterations": 6, "groups": 2, "evaluation": 8}


def candidates(view: Any) -> list[dict[str, Any]]:
    """Return the answers to some tasks, of which one is right, and some wrong answers."""
    answers = [_answer(name) for name in ("digital_root", "roman", "is_balanced", "run_lengths")]
    answers += ["", "def digital_root(number): return number", "def roman(number): return 'I'"]
    return [{"code": code, "submit": True} for code in answers]


def _answer(name: str) -> str:
    source = inspect.getsource(FUNCTIONS[name])
    return f"from collections import Counter\n{source[source.index('def ') :]}"
