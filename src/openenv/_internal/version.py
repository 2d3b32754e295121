"""The package's version, which is defined in `pyproject.toml` only."""

from __future__ import annotations


def version() -> str:
    """Return the installed version; ``0.0.0`` for sources that are not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("openenv")
    except PackageNotFoundError:
        return "0.0.0"
