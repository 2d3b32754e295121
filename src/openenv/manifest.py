"""``openenv.yaml``, by which an environment's directory says what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openenv.errors import OpenEnvError

__all__ = ["MANIFEST", "ManifestError", "package_name", "read_manifest"]

MANIFEST = "openenv.yaml"


class ManifestError(OpenEnvError, ValueError):
    """A manifest cannot be read, or is no mapping; the text says where and why."""


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a directory; None if it has none.

    Raises:
        ManifestError: There is one that cannot be read.
    """
    import yaml

    path = directory / MANIFEST
    if not path.is_file():
        return None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ManifestError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ManifestError(f"{path} must hold a mapping, not {type(content).__name__}")
    return content


def package_name(manifest: dict[str, Any]) -> str:
    """The name of the Python package that a manifest describes; empty if it gives none."""
    name = str(manifest.get("name") or "").replace("-", "_")
    return name if name.isidentifier() else ""
