"""The ``openenv.yaml`` of an environment's directory.

`read_manifest` is for users of an environment, and accepts everything that can be read;
`check_manifest` is for its author, and reports each mistake with its place.
`openenv.manifest.directories` imports an
environment from its directory. Above: the CLI, `openenv.hub`, `openenv.images`,
`openenv.validation`. Below: `openenv._internal.yaml`. Read ``model.py`` first.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.lazy import lazy
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.manifest.checking import ManifestCheck as ManifestCheck
    from openenv.manifest.checking import check_manifest as check_manifest
    from openenv.manifest.checking import migrate_manifest as migrate_manifest
    from openenv.manifest.model import Manifest as Manifest
    from openenv.manifest.model import manifest_schema as manifest_schema
    from openenv.manifest.reading import ManifestProblem as ManifestProblem
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
    __all__ += [
        "MANIFEST",
        "SPEC_VERSION",
        "ManifestError",
        "image_name",
        "package_name",
        "read_manifest",
        "short_name",
    ]


MANIFEST = "openenv.yaml"

SPEC_VERSION = 1
"""The newest manifest version that this package reads."""


class ManifestError(OpenEnvError, ValueError):
    """Raised if a manifest cannot be read or holds no mapping; the text says where and why.

    Attributes:
        problem: The problem and its place; None if the place is not known.
    """

    def __init__(self, text: str, problem: ManifestProblem | None = None) -> None:
        self.problem = problem
        super().__init__(text)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Read the manifest of a directory; return None if the directory has none.

    Raises:
        ManifestError: The manifest cannot be read.
    """
    path = directory / MANIFEST
    if not path.is_file():
        return None
    from openenv.manifest.reading import read_document

    return read_document(path).content


def package_name(manifest: dict[str, Any]) -> str:
    """Return the Python package's name that a manifest implies; empty if there is none."""
    name = str(manifest.get("name") or "").replace("-", "_")
    return name if name.isidentifier() else ""


def short_name(name: str) -> str:
    """Return an environment's name without the suffix ``env``, in the form of image names:
    ``echo``.
    """
    return "-".join(re.findall("[a-z0-9]+", re.sub("[-_]env$", "", name.lower())))


def image_name(name: str) -> str:
    """Return the default image name of an environment: ``echo-env:latest``.

    Args:
        name: The environment's name or its package's: ``echo``, ``echo_env``.
    """
    return f"{short_name(name)}-env:latest"
