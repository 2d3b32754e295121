"""The model of ``openenv.yaml``, and the JSON Schema with which editors complete the file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from openenv.manifest import MANIFEST, SPEC_VERSION
from openenv.manifest.declarations import ValidationSection

__all__ = ["Manifest", "manifest_schema"]

CLASS = r"^[A-Za-z_][A-Za-z0-9_]*$"
APP = r"^[A-Za-z_][A-Za-z0-9_.]*(:[A-Za-z_][A-Za-z0-9_.]*)?$"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _text(value: Any) -> Any:
    """Turn what YAML reads as a number, a date or a boolean back into the intended text."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None or isinstance(value, str | list | dict) else str(value)


def _number(value: Any) -> Any:
    """Turn versions written as text or as a whole float into an integer."""
    if isinstance(value, str):
        value = float(value) if value.replace(".", "", 1).isdigit() else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, BeforeValidator(_text)]


class Manifest(BaseModel):
    """The content of an ``openenv.yaml``."""

    model_config = ConfigDict(extra="ignore")

    spec_version: Annotated[int, BeforeValidator(_number)] = Field(
        default=SPEC_VERSION,
        ge=1,
        le=SPEC_VERSION,
        description="Version of this file's format.",
    )
    name: Text = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=96,
        description="Name of the environment, its image, its Space and its package, such as "
        "chess_env.",
    )
    version: Text | None = Field(
        default=None, description='Version of the environment, in quotes, such as "0.1.0".'
    )
    description: Text | None = Field(
        default=None, description="Summary of the environment in one line."
    )
    type: str = Field(default="space", description="Kind of package: space.")
    runtime: str = Field(
        default="fastapi", description="Framework that serves the environment: fastapi."
    )
    app: str = Field(
        default="server.app:app",
        pattern=APP,
        description="The ASGI application, as module:attribute; a module that begins with server "
        "is the package's own.",
    )
    port: int = Field(
        default=8000, ge=1, le=65535, description="Port on which the container listens."
    )
    client: str | None = Field(
        default=None, pattern=CLASS, description="Class of the client; inferred by default."
    )
    action: str | None = Field(
        default=None, pattern=CLASS, description="Class of the actions; inferred by default."
    )
    observation: str | None = Field(
        default=None,
        pattern=CLASS,
        description="Class of the observations; inferred by default.",
    )
    variables: dict[Annotated[str, Field(pattern=CLASS)], Text] = Field(
        default_factory=dict,
        description="Environment variables of the server. They are public: put no secrets here.",
    )
    license: Text | None = Field(
        default=None, description="SPDX identifier, such as MIT; by default that of pyproject.toml."
    )
    tags: list[Text] = Field(default_factory=list, description="Keywords for searching.")
    author: Text | None = Field(default=None, description="Author of the environment.")
    validation: ValidationSection | None = Field(
        default=None, description="Declarations that `openenv validate` checks."
    )


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``openenv.yaml``."""
    return {"$schema": DIALECT, **Manifest.model_json_schema(), "title": MANIFEST}
