"""The version, which stands in `pyproject.toml` alone."""

from __future__ import annotations

__all__ = ["version"]


def version() -> str:
    """The version that is installed; ``0.0.0`` where these are sources that are not."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("openenv")
    except PackageNotFoundError:
        return "0.0.0"
