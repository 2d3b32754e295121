"""What sessions leave in reference cycles is not held for long, though cycles are sought seldom."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import weakref
from openenv._internal.children import calm_garbage_collector

class Session:
    def __init__(self):
        self.parts = [[self] for _ in range(60)]

calm_garbage_collector()
alive, most = weakref.WeakSet(), 0
for _ in range(1000):
    alive.add(Session())
    most = max(most, len(alive))
print(most)
"""


def test_a_hundred_sessions_garbage_at_most_waits_for_the_collector() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert 1 < int(done.stdout) <= 100
