"""The engine that these tests use: Podman's; see scripts/containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.commands import ENVIRONMENTS

from openenv.providers.engines import find_engine


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[Any]:
    """The engine; at the end it has no image and no container of these tests."""
    told = ENVIRONMENTS.parent / ".containers" / "containers.conf"
    with pytest.MonkeyPatch.context() as patch:
        if told.exists():
            patch.setenv("CONTAINERS_CONF", str(told))
        client = find_engine()
        yield client
        names = [name for image in client.images() for name in image.get("RepoTags") or ()]
        assert not [name for name in names if "openenv-validate" in name]
        assert client.containers(all=True, filters={"label": "dev.openenv.validation"}) == []
