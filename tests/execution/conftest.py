"""Managers of sessions, closed with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from execution.parts import Manage
from support.environments import Do, Seen

from openenv.execution.manager import ConcurrencyConfig, SessionManager
from openenv.execution.spec import EnvironmentSpec


@pytest.fixture
async def manage() -> AsyncIterator[Manage]:
    """Make managers, from a factory and the fields of a `ConcurrencyConfig`."""
    managers: list[SessionManager] = []

    def manage(factory: Callable[[], Any], **limits: Any) -> SessionManager:
        spec = EnvironmentSpec.of(factory, Do, Seen)
        config = ConcurrencyConfig(**limits) if limits else None
        managers.append(SessionManager(spec, config))
        return managers[-1]

    yield manage
    for manager in managers:
        await manager.aclose()
