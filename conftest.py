"""What is no core test: whatever plays whole games, starts engines, or takes its time otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
CORE = {"echo_env", "openspiel_env"}
ENGINES = {"adapters", "integrations", "sandbox"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the larger environments, and of what starts engines, as slow."""
    for item in items:
        place = item.path.relative_to(ROOT).parts
        if (place[0] == "envs" and place[1] not in CORE) or (
            place[:1] == ("tests",) and place[1] in ENGINES
        ):
            item.add_marker(pytest.mark.slow)
