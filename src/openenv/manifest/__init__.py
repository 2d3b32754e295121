"""``openenv.yaml``, by which an environment's directory says what it is.

`read_manifest` is for who wants to use an environment: it takes whatever it can. `check_manifest`
is for its author: it says each thing that is wrong, and where. `Manifest` is what there is to say.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.lazy import lazy
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.manifest.checking import Checked as Checked
    from openenv.manifest.checking import check_manifest as check_manifest
    from openenv.manifest.migrating import migrated as migrated
    from openenv.manifest.model import Manifest as Manifest
    from openenv.manifest.model import manifest_schema as manifest_schema
    from openenv.manifest.problems import Problem as Problem
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "openenv.manifest.checking": ["Checked", "check_manifest"],
            "openenv.manifest.migrating": ["migrated"],
            "openenv.manifest.model": ["Manifest", "manifest_schema"],
            "openenv.manifest.problems": ["Problem"],
        },
    )

__all__ = [
    "MANIFEST",
    "SPEC_VERSION",
    "Checked",
    "Manifest",
    "ManifestError",
    "Problem",
    "check_manifest",
    "image_name",
    "manifest_schema",
    "migrated",
    "package_name",
    "read_manifest",
    "short_name",
]

MANIFEST = "openenv.yaml"

SPEC_VERSION = 1
"""The newest form of a manifest that is known."""


class ManifestError(OpenEnvError, ValueError):
    """A manifest cannot be read, or is no mapping; the text says where and why.

    Attributes:
        problem: Where it stands; None where that is not known.
    """

    def __init__(self, text: str, problem: Problem | None = None) -> None:
        self.problem = problem
        super().__init__(text)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a directory; None if it has none.

    Raises:
        ManifestError: There is one that cannot be read.
    """
    path = directory / MANIFEST
    if not path.is_file():
        return None
    from openenv.manifest.reading import read_document

    return read_document(path).content


def package_name(manifest: dict[str, Any]) -> str:
    """The name of the Python package that a manifest describes; empty if it gives none."""
    name = str(manifest.get("name") or "").replace("-", "_")
    return name if name.isidentifier() else ""


def short_name(name: str) -> str:
    """The name of an environment without its ``env``, in words of images: ``echo``."""
    return "-".join(re.findall("[a-z0-9]+", re.sub("[-_]env$", "", name.lower())))


def image_name(name: str) -> str:
    """The image of an environment that was given no other name: ``echo-env:latest``.

    Args:
        name: That of the environment, or of its package: ``echo``, ``echo_env``.
    """
    return f"{short_name(name)}-env:latest"
