"""The engine that these tests use: Podman's; see scripts/containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.commands import ENVIRONMENTS
from validation.containers.parts import held

from openenv.providers.engines import find_engine


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[Any]:
    """The engine; at the end it has no image and no container more of packages of these tests."""
    told = ENVIRONMENTS.parent / ".containers" / "containers.conf"
    with pytest.MonkeyPatch.context() as patch:
        if told.exists():
            patch.setenv("CONTAINERS_CONF", str(told))
        client = find_engine()
        before = held(client)
        yield client
        assert held(client) - before == set()
