"""What the tests of faults share."""

from __future__ import annotations

import pytest
from support.environments import Counter, Log


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What happens to every counter, from the beginning of a test."""
    log = Log()
    monkeypatch.setattr(Counter, "log", log)
    return log
