"""What there is to say in ``openenv.yaml``, and the JSON Schema by which editors complete it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from openenv.manifest import MANIFEST, SPEC_VERSION
from openenv.manifest.declarations import Section

__all__ = ["Manifest", "manifest_schema"]

CLASS = r"^[A-Za-z_][A-Za-z0-9_]*$"
APP = r"^[A-Za-z_][A-Za-z0-9_.]*(:[A-Za-z_][A-Za-z0-9_.]*)?$"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _text(value: Any) -> Any:
    """What YAML takes for a number, a date or a truth value, as the text that was meant."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None or isinstance(value, str | list | dict) else str(value)


def _number(value: Any) -> Any:
    """Versions that were written as text, or with a fraction of nothing."""
    if isinstance(value, str):
        value = float(value) if value.replace(".", "", 1).isdigit() else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, BeforeValidator(_text)]


class Manifest(BaseModel):
    """An environment's directory, as its ``openenv.yaml`` describes it."""

    model_config = ConfigDict(extra="ignore")

    spec_version: Annotated[int, BeforeValidator(_number)] = Field(
        default=SPEC_VERSION,
        ge=1,
        le=SPEC_VERSION,
        description="The form of this file.",
    )
    name: Text = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=96,
        description="The environment's name, such as chess_env: of its image, its Space, its "
        "package.",
    )
    version: Text | None = Field(
        default=None, description='Its version, in quotes, such as "0.1.0".'
    )
    description: Text | None = Field(default=None, description="What it is, in one line.")
    type: str = Field(default="space", description="What kind of package: space.")
    runtime: str = Field(default="fastapi", description="What serves it: fastapi.")
    app: str = Field(
        default="server.app:app",
        pattern=APP,
        description="The ASGI application, as module:attribute; a module that begins with server "
        "is the package's own.",
    )
    port: int = Field(default=8000, ge=1, le=65535, description="Where its container listens.")
    client: str | None = Field(
        default=None, pattern=CLASS, description="The class of its client; else it is inferred."
    )
    action: str | None = Field(
        default=None, pattern=CLASS, description="The class of its actions; else it is inferred."
    )
    observation: str | None = Field(
        default=None,
        pattern=CLASS,
        description="The class of its observations; else it is inferred.",
    )
    variables: dict[Annotated[str, Field(pattern=CLASS)], Text] = Field(
        default_factory=dict,
        description="Environment variables of its server, readable by everybody. No secrets.",
    )
    license: Text | None = Field(
        default=None, description="By SPDX, such as MIT; else that of its pyproject.toml."
    )
    tags: list[Text] = Field(default_factory=list, description="Words to find it by.")
    author: Text | None = Field(default=None, description="Who made it.")
    validation: Section | None = Field(
        default=None, description="What `openenv validate` holds against it."
    )


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``openenv.yaml``."""
    return {"$schema": DIALECT, **Manifest.model_json_schema(), "title": MANIFEST}
