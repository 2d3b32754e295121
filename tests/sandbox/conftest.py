"""Every kind of sandbox that this machine has, for tests that hold for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openenv.sandbox import Sandbox, SandboxPolicy, kinds_of_this_machine

Make = Callable[..., Sandbox]

# gVisor is not on every machine, and needs root. The others must be: scripts/engines gets them.
REQUIRED = ("bubblewrap", "landlock")
THERE = [one.kind for one in kinds_of_this_machine() if one.is_there]
KINDS = [*REQUIRED, *(kind for kind in THERE if kind not in REQUIRED)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def make() -> Iterator[Make]:
    """Start sandboxes; they end with the test."""
    made: list[Sandbox] = []

    def make(policy: SandboxPolicy | None = None, **options: Any) -> Sandbox:
        made.append(Sandbox(policy, **{"require": "process", **options}))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


@pytest.fixture
def sandbox(make: Make, kind: str) -> Sandbox:
    return make(kind=kind)
