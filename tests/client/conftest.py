"""What tests of lost connections share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.environments import Counter, Log
from support.relay import Relay
from support.servers import serving

from openenv import create_app
from openenv.execution.limits import Limits


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What happens to every counter, from the beginning of a test."""
    log = Log()
    monkeypatch.setattr(Counter, "log", log)
    return log


@pytest.fixture
def relay(log: Log) -> Iterator[Relay]:
    """To a server that keeps nothing for a client to come back to, as under version 0."""
    with serving(create_app(Counter, limits=Limits(resume_grace_s=0))) as url:
        relay = Relay(url)
        yield relay
        relay.close()
