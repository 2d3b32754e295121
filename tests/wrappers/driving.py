"""Driving what a target names, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from openenv import GenericEnvClient
from openenv.server.loading import load_target


@contextlib.contextmanager
def driving(target: str) -> Iterator[Any]:
    """A synchronous client of a target's environment."""
    with GenericEnvClient.local(load_target(target)).sync() as env:
        yield env


def refusal(env: Any, action: dict[str, Any]) -> str:
    """What a step is refused with."""
    try:
        env.step(action)
    except RuntimeError as error:
        return str(error)
    raise AssertionError(f"{action} was not refused")
