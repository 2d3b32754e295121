"""JSON Schemas of manifests and reports, generated from the models.

`write_schemas` regenerates the files; a test compares them with the models.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from pydantic import BaseModel

from openenv.validation.manifest import NormalizedManifest, NormalizedManifestV2
from openenv.validation.report import ValidationReport, ValidationReportV2

__all__ = ["FILES", "read_schema", "render_schema", "write_schemas"]

FILES: dict[str, type[BaseModel]] = {
    "manifest.schema.json": NormalizedManifest,
    "manifest-v2.schema.json": NormalizedManifestV2,
    "report.schema.json": ValidationReport,
    "report-v2.schema.json": ValidationReportV2,
}
"""The schema files, and the model of each."""


def read_schema(name: str) -> str:
    """Return the text of a schema file in the package (see `FILES`)."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")


def render_schema(model: type[BaseModel]) -> str:
    """Return the JSON Schema of a model as text."""
    return json.dumps(model.model_json_schema(), indent=2, sort_keys=True) + "\n"


def write_schemas(directory: Path) -> None:
    """Write the schemas of all models to a directory."""
    for name, model in FILES.items():
        (directory / name).write_text(render_schema(model), encoding="utf-8")
