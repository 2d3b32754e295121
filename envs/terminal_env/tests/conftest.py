"""Fixtures with terminals in each kind of sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openenv.sandbox import kinds_of_this_machine

from .. import TerminalAction, TerminalObservation
from ..server.settings import Settings
from ..server.tasks import Task, TaskSet
from ..server.terminal_environment import TerminalEnvironment

Make = Callable[..., TerminalEnvironment]

THERE = [one.kind for one in kinds_of_this_machine() if one.is_there]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a factory of environments with their own settings and tasks; the test closes them."""
    made: list[TerminalEnvironment] = []

    def make(
        *tasks: Task, kind: str = "bubblewrap", require: str = "process", **settings: Any
    ) -> TerminalEnvironment:
        how = Settings(sandbox=kind, require=require, **{"warm_sandboxes": 0, **settings})
        made.append(TerminalEnvironment(how, tasks=TaskSet(list(tasks)) if tasks else None))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture
def env(make: Make) -> TerminalEnvironment:
    """Return a terminal at its first prompt."""
    env = make()
    env.reset(seed=0)
    return env


def run(env: TerminalEnvironment, command: str, **fields: Any) -> TerminalObservation:
    """Run a command."""
    return env.step(TerminalAction(command=command, **fields))


def submit(env: TerminalEnvironment) -> TerminalObservation:
    """Submit the task."""
    return env.step(TerminalAction(kind="submit"))
