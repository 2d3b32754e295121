"""What is no core test: whatever plays whole games, starts engines, or takes its time otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
CORE = {"echo_env", "openspiel_env"}
SLOW = {ROOT / "tests" / name for name in ("adapters", "integrations", "sandbox")} | {
    ROOT / "tests" / "mcp" / "test_clients.py",
    *(path for path in (ROOT / "envs").iterdir() if path.name not in CORE),
}


def _is_slow(path: Path) -> bool:
    return not SLOW.isdisjoint((path, *path.parents))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read the slow ones where they are not asked for."""
    is_unwanted = "not slow" in config.option.markexpr and _is_slow(collection_path)
    return True if is_unwanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the larger environments, and of what starts engines, as slow."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
