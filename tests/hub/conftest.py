"""Environment packages that are installed for one test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.packages import make_distribution, make_package

from openenv.hub import discovery
from openenv.hub.discovery import reset_discovery

SOURCE = Path(discovery.__file__).parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on `sys.path`; what is imported from it is forgotten afterwards."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    before = set(sys.modules)
    reset_discovery()
    yield directory
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        if any(str(place).startswith(str(tmp_path)) for place in places):
            del sys.modules[name]
    reset_discovery()


@pytest.fixture
def parrot(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed environment that can be served by another process."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    make_distribution(site, "openenv-parrot-env", "2.1", "Says what it is told")
    return make_package(site, "parrot_env", "Parrot")
