"""The JSON Schemas of manifests and reports, as they are made from the models.

`write_schemas` writes the files anew; a test sees that they are what the models say.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from pydantic import BaseModel

from openenv.validation.manifest import NormalizedManifest, NormalizedManifestV2
from openenv.validation.report import ValidationReport, ValidationReportV2

__all__ = ["FILES", "read_schema", "schema_of", "write_schemas"]

FILES: dict[str, type[BaseModel]] = {
    "manifest.schema.json": NormalizedManifest,
    "manifest-v2.schema.json": NormalizedManifestV2,
    "report.schema.json": ValidationReport,
    "report-v2.schema.json": ValidationReportV2,
}
"""Each file, and the model that it is of."""


def read_schema(name: str) -> str:
    """The text of one of `FILES`, as it lies in the package."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")


def schema_of(model: type[BaseModel]) -> str:
    """The text of a model's schema."""
    return json.dumps(model.model_json_schema(), indent=2, sort_keys=True) + "\n"


def write_schemas(directory: Path) -> None:
    """Write the schemas of the models into a directory."""
    for name, model in FILES.items():
        (directory / name).write_text(schema_of(model), encoding="utf-8")
